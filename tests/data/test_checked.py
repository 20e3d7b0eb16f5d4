"""Data are checked client by client, when one is first used, however many there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import srpfl
import tiny
from sentence import one_sentence
from srpfl.data import Samples, Transform
from srpfl.data.checks import COUNTED, LOOKED_AT, SAMPLED, Checked, check_data
from srpfl.engine.loop import LoopEngine
from srpfl.errors import ConfigError, DataError, RunFolderError
from srpfl.task import Classification, MultiLabel, NextToken, Regression, Task

MANY = LOOKED_AT + 500
AS_IT_IS = Transform(scale=False)
BOTH = ("train", "test")
BAD = 7  # not among those that are looked at beforehand


@dataclass(frozen=True)
class Crowd:
    """Any number of clients with four samples each, made when they are asked for."""

    clients: int = MANY
    change: Callable[[int, np.ndarray, np.ndarray], tuple[Any, Any]] | None = None
    classes: int = 3
    transform: Transform = AS_IT_IS
    parts: tuple[str, ...] = ("train",)  # which are changed

    def size(self, client: int) -> int:
        return 4

    def _samples(self, client: int, part: str) -> Samples:
        rng = np.random.default_rng([client, part == "train"])
        x, y = rng.normal(size=(4, 4)).astype(np.float32), rng.integers(3, size=4)
        if self.change is not None and part in self.parts:
            x, y = self.change(client, x, y)
        return Samples(x, y)

    def train(self, client: int) -> Samples:
        return self._samples(client, "train")

    def test(self, client: int) -> Samples:
        return self._samples(client, "test")


@dataclass(frozen=True)
class Always(srpfl.Everyone):
    """Asks the same few."""

    these: tuple[int, ...] = (3, BAD)

    def call(self, memory: Any, round: int, population: int) -> Any:
        return srpfl.participation.Call(ask=len(self.these), wait=len(self.these))

    def choose(self, memory: Any, call: Any, idle: Any, rng: Any) -> list[int]:
        return list(self.these)


def at(client: int, change: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
    return lambda number, x, y: change(x, y) if number == client else (x, y)


def play(data: Any, **changes: Any) -> srpfl.Run:
    choices = {"participation": Always(), "rounds": 1, "evaluate_every": 0}
    return tiny.simulate(data=data, **{**choices, **changes})


WRONG = {
    "ignored label": (lambda x, y: (x, np.where(y > -1, -100, y)), "labels must be whole numbers"),
    "label too large": (lambda x, y: (x, y + 3), "labels must be whole numbers from 0 to 2"),
    "float labels": (lambda x, y: (x, y.astype(float)), "labels must be whole numbers"),
    "complex labels": (lambda x, y: (x, y.astype(complex)), "labels must be real numbers"),
    "text labels": (lambda x, y: (x, y.astype(str)), "labels must be real numbers"),
    "NaN": (lambda x, y: (x * np.nan, y), "inputs that are not finite"),
    "infinity": (lambda x, y: (x + np.inf, y), "inputs that are not finite"),
    "complex inputs": (lambda x, y: (x.astype(complex), y), "inputs must be real numbers"),
    "objects": (lambda x, y: (x.astype(object), y), "inputs must be real numbers"),
    "long doubles": (lambda x, y: (x.astype(np.longdouble), y), "inputs must be real numbers"),
    "tensors": (lambda x, y: (torch.from_numpy(x), y), "must be NumPy arrays"),
    "lists": (lambda x, y: (x.tolist(), y), "must be NumPy arrays"),
    "nothing": (lambda x, y: (None, y), "must be NumPy arrays"),
    "a number": (lambda x, y: (np.float32(1), y), "must be NumPy arrays"),
    "other shape": (
        lambda x, y: (x[:, :3], y),
        r"inputs have the shape \(3,\), but client 0's have \(4,\): .* padding",
    ),
    "two inputs": (lambda x, y: ((x, x), y), r"inputs have the shape \(\(4,\), \(4,\)\)"),
    "whole numbers": (lambda x, y: ((9 * x).astype(int), y), "inputs of type int64, but client 0"),
    "bytes": (lambda x, y: (x.astype(np.uint8), y), "inputs of type uint8, but client 0"),
    "truth values": (lambda x, y: (x > 0, y), "has numbers with a point"),
    "masked inputs": (lambda x, y: (np.ma.masked_less(x, 0.5), y), "masked values"),
    "masked NaN": (lambda x, y: (np.ma.masked_invalid(np.where(x > 0, x, np.nan)), y), "masked"),
    "masked labels": (lambda x, y: (x, np.ma.masked_less(y, 3)), "masked values"),
    "fewer labels": (lambda x, y: (x, y[:2]), "as many inputs as labels"),
    "fewer of both": (lambda x, y: (x[:2], y[:2]), "has 2 training samples, but its size is said"),
}


@pytest.mark.parametrize("engine", ["loop", "vectorised", "workers"])
@pytest.mark.parametrize("kind", ["ignored label", "NaN", "other shape", "float labels"])
def test_a_client_of_many_is_checked_when_it_is_used(engine: str, kind: str) -> None:
    change, sentence = WRONG[kind]
    data = Crowd(change=at(BAD, change))
    with pytest.raises(DataError, match=f"client {BAD}.*{sentence}") as caught:
        play(data, engine=engine)
    one_sentence(caught.value)
    assert len(play(data, engine=engine, participation=Always(these=(3, 4))).rounds) == 1


@pytest.mark.parametrize("clients", [BAD + 3, MANY, COUNTED + 5])
@pytest.mark.parametrize("kind", WRONG)
def test_whatever_is_wrong_is_one_sentence_at_any_population(clients: int, kind: str) -> None:
    change, sentence = WRONG[kind]
    with pytest.raises(DataError, match=f"client {BAD}.*{sentence}"):
        play(Crowd(clients, change=at(BAD, change)))


def test_what_a_client_is_tested_on_is_checked_too() -> None:
    data = Crowd(change=at(BAD, lambda x, y: (x, y - 100)), parts=("test",))
    with pytest.raises(DataError, match=f"client {BAD}'s labels"):
        play(data, evaluate_every=1)
    data = Crowd(change=at(0, lambda x, y: (x.astype(int), y)), parts=("test",))
    with pytest.raises(DataError, match="client 0 has test inputs of type int64"):
        play(data)


def test_a_model_that_does_not_take_the_test_samples_is_refused_at_once() -> None:
    data = Crowd(9, change=lambda client, x, y: (x[:, :3], y), parts=("test",))
    with pytest.raises(ConfigError, match=r"does not take test samples of shape \(3,\)") as caught:
        play(data)
    one_sentence(caught.value)


def test_an_engine_of_ones_own_gets_checked_clients_only() -> None:
    data = Crowd(change=at(BAD, lambda x, y: (x, y - 100)))
    with pytest.raises(DataError, match=f"client {BAD}'s labels"):
        play(data, engine=LoopEngine(tiny.model(), data))


def test_runs_that_are_played_together_are_checked_one_by_one() -> None:
    def run(data: Any) -> dict[str, Any]:
        return {
            "data": data,
            "model": tiny.model(),
            "algorithm": srpfl.FedAvg(epochs=1),
            "participation": Always(),
            "rounds": 1,
            "evaluate_every": 0,
            "engine": "vectorised",
        }

    bad = Crowd(change=at(BAD, lambda x, y: (x, y - 100)))
    fine, broken = srpfl.simulate_together([run(Crowd()), run(bad)])
    assert isinstance(fine, srpfl.Run)
    assert isinstance(broken, DataError)
    assert f"client {BAD}'s labels" in str(broken)


@pytest.mark.parametrize(
    ("task", "labels", "outputs"),
    [
        (Regression(), lambda y: y * 0.5 - 3, 1),
        (Regression(), lambda y: (y - 5).astype(np.int32), 1),
        (Regression(), lambda y: np.stack([y, -y], 1).astype(np.float64), 2),
        (MultiLabel(), lambda y: np.stack([y > 0, y > 1], 1), 2),
        (MultiLabel(), lambda y: np.stack([y > 0, y > 1], 1).astype(np.float32), 2),
    ],
)
@pytest.mark.parametrize("clients", [BAD + 3, MANY])
def test_other_tasks_labels_are_theirs(task: Task, labels: Any, outputs: int, clients: int) -> None:
    data = Crowd(clients, change=lambda client, x, y: (x, labels(y)), classes=0, parts=BOTH)
    run = play(data, task=task, model=tiny.model(classes=outputs))
    assert np.isfinite(run.rounds[0].loss)


def test_places_that_do_not_count_are_no_mistake_of_the_next_tokens() -> None:
    def tokens(client: int, x: Any, y: Any) -> tuple[Any, Any]:
        ids = np.abs(x * 10).astype(np.int64) % 3
        return ids, np.where(ids == 0, -100, ids)

    data = Crowd(change=tokens, classes=0, parts=BOTH)
    model = torch.nn.Sequential(torch.nn.Embedding(3, 8), torch.nn.Linear(8, 3))
    run = play(data, task=NextToken(), model=model, algorithm=srpfl.FedAvg(epochs=1))
    assert np.isfinite(run.rounds[0].loss)
    wrong = Crowd(
        change=lambda c, x, y: (tokens(c, x, y)[0], tokens(c, x, y)[0] - 5), classes=0, parts=BOTH
    )
    with pytest.raises(DataError, match="rows of whole numbers"):
        play(wrong, task=NextToken(), model=model, algorithm=srpfl.FedAvg(epochs=1))


@pytest.mark.parametrize(
    "turned",
    [
        lambda x, y: (x.astype(">f4"), y.astype(">i8")),
        lambda x, y: (x[::-1].copy()[::-1], y[::-1].copy()[::-1]),
        lambda x, y: (np.asfortranarray(x), y),
    ],
)
@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_how_arrays_lie_in_memory_changes_nothing(turned: Any, engine: str) -> None:
    """PyTorch takes neither other orders of bytes nor arrays that run backwards."""
    usual = play(Crowd(), engine=engine)
    other = play(Crowd(change=lambda client, x, y: turned(x, y)), engine=engine)
    assert tiny.same(usual.state.shared, other.state.shared)


def test_each_client_is_checked_once() -> None:
    class Counting(Classification):
        def check_labels(self, y: Any, classes: int) -> str | None:
            looked.append(1)
            return None

    looked: list[int] = []
    data = Checked(Crowd(), Counting())
    for _ in range(3):
        data.train(5)
        data.test(5)
        data.look("train", [5, 6])
    assert len(looked) == 3


@pytest.mark.parametrize("clients", [20, MANY, COUNTED + 5])
def test_other_data_have_another_fingerprint(clients: int) -> None:
    def fingerprint(change: Any = None) -> str:
        return check_data(Checked(Crowd(clients, change=change), Classification())).fingerprint

    usual = fingerprint()
    assert fingerprint() == usual
    first, last = 0, clients - 1
    assert fingerprint(at(last, lambda x, y: (x, y[::-1].copy()))) != usual
    assert fingerprint(at(first, lambda x, y: (x + np.float32(1e-6), y))) != usual
    assert fingerprint(lambda client, x, y: (x, y.astype(np.int32))) != usual


def test_a_fingerprint_looks_at_some_of_many_and_at_all_of_few() -> None:
    asked: set[int] = set()

    def note(client: int, x: Any, y: Any) -> tuple[Any, Any]:
        asked.add(client)
        return x, y

    check_data(Checked(Crowd(10**6, change=note), Classification()))
    assert len(asked) == SAMPLED
    assert {0, 10**6 - 1} <= asked
    asked.clear()
    check_data(Checked(Crowd(30, change=note), Classification()))
    assert asked == set(range(30))


@pytest.mark.parametrize("clients", [10, MANY])
def test_a_run_is_not_resumed_on_other_data_with_equal_class_counts(
    clients: int, tmp_path: Path
) -> None:
    choices = {"participation": Always(), "out": tmp_path / "run", "evaluate_every": 0}
    tiny.simulate(data=Crowd(clients), **choices)
    others = Crowd(clients, change=at(0, lambda x, y: (x[::-1].copy(), y)))
    with pytest.raises(RunFolderError, match="holds a run on other data"):
        tiny.simulate(data=others, **choices, resume=True)
    assert len(tiny.simulate(data=Crowd(clients), **choices, resume=True).rounds) == 4


def test_if_nobody_has_test_samples_evaluation_is_refused_with_a_way_out() -> None:
    def empty(client: int, x: Any, y: Any) -> tuple[Any, Any]:
        return x[:0], y[:0]

    for clients in (10, MANY):
        data = Crowd(clients, change=empty, parts=("test",))
        with pytest.raises(DataError, match=r"nothing to evaluate: .* evaluate_every=0"):
            play(data, evaluate_every=1, evaluations="local")
        assert len(play(data, evaluate_every=0).rounds) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clients": 0}, "there are no clients"),
        ({"clients": 2.5}, "number of clients of the data must be a whole number"),
        ({"classes": None}, "number of classes of the data must be a whole number"),
        ({"classes": -3}, "number of classes must be zero or more"),
        ({"classes": 10**9}, "1,000,000,000 classes, more than 100,000"),
    ],
)
def test_impossible_numbers_of_clients_and_classes(changes: Any, sentence: str) -> None:
    with pytest.raises(srpfl.SrpflError, match=sentence):
        play(Crowd(**changes))


ARRAYS = st.sampled_from(
    ["?", "i1", "u2", "<i4", ">i8", "f2", "f4", ">f8", "c8", "S3", "O", "M8[s]"]
)


@given(
    kind=ARRAYS,
    labels=ARRAYS,
    shape=st.lists(st.integers(0, 4), max_size=3),
    number=st.sampled_from([0, 1, -1, -100, 300, 1e9, float("nan"), float("inf")]),
)
def test_any_array_is_learnt_from_or_one_sentence(
    kind: str, labels: str, shape: list[int], number: float
) -> None:
    def filled(kind: str, shape: list[int]) -> Any:
        with np.errstate(all="ignore"):
            try:
                return np.full(shape, number).astype(kind)
            except (TypeError, ValueError):
                return np.zeros(shape, kind)

    data = Crowd(1, change=lambda client, x, y: (filled(kind, shape), filled(labels, shape[:1])))
    try:
        run = play(data, participation=srpfl.Everyone())
    except srpfl.SrpflError as error:
        one_sentence(error)
    else:
        assert shape == [4, 4]
        assert np.isfinite(run.rounds[0].loss)
