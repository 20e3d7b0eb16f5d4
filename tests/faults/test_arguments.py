"""Whatever ``simulate`` is given: a run, or one sentence that says what is wrong with it."""

from __future__ import annotations

import inspect
import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import srpfl
import tiny
from sentence import one_sentence
from srpfl.core.rules import SGD
from srpfl.errors import ConfigError, SrpflError

NAMES = [*inspect.signature(srpfl.simulate).parameters]


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


def itself() -> list[Any]:
    """A list that holds itself."""
    one: list[Any] = []
    one.append(one)
    return one


ODD: list[Any] = [
    *(None, True, False, 0, 1, 2, -1, 5, 10**30, -(10**30), 0.0, 0.5, 1.5, -0.5, 1e300),
    *(math.nan, math.inf, -math.inf, 1j, "", "x", "a\0b", "\ud800", "x\ny", b"x", "local", "cpu"),
    *([], [1], [0], ["x"], [None], (), (1, 2), {}, {"a": 1}, {1: math.nan}, {1, 2}, range(3)),
    *(np.int64(1), np.float32(0.5), np.float64("nan"), np.bool_(True), np.str_("x")),
    *(np.array(1), np.array([1, 2]), np.array([0.5]), np.zeros((2, 2)), np.array(["x"])),
    *(torch.tensor(1), torch.tensor([1, 2]), torch.tensor(0.5), torch.device("cpu")),
    *(object(), object, len, print, lambda: 5, lambda x: x, Unprintable(), Unprintable, itself()),
    *(
        Path("folder"),
        Path("a/" * 1500),
        Exception("x"),
        torch.nn.Module(),
        torch.nn.Linear(4, 3),
        srpfl.FedAvg,
    ),
    *(srpfl.FedAvg(epochs=1), srpfl.Everyone(), srpfl.FixedExponential(), srpfl.Classification()),
    *(srpfl.Watcher(), srpfl.Doubling, srpfl.Regression(), srpfl.NextToken(), SGD(lr=0.1)),
    *(tiny.data(), itertools.count(), range(10**9), torch.tensor(2, device="meta")),
]


def play(**changes: Any) -> srpfl.Run:
    usual = {"participation": srpfl.Everyone(), "algorithm": srpfl.FedAvg(epochs=1), "rounds": 1}
    return tiny.simulate(**{**usual, **changes})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_any_value_of_an_argument_is_taken_or_refused_in_one_sentence(
    name: str, tmp_path: Path
) -> None:
    for number, value in enumerate(ODD):
        out = {} if name == "out" else {"out": tmp_path / f"run{number}"}
        try:
            run = play(**out, **{name: value})
        except SrpflError as error:
            one_sentence(error)
        else:
            json.dumps(run.config, allow_nan=False)
            assert len(run.rounds) in (1, value)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(ODD), max_size=4))
def test_any_values_of_several_arguments(changes: dict[str, Any]) -> None:
    try:
        run = play(**changes)
    except SrpflError as error:
        one_sentence(error)
    else:
        json.dumps(run.config, allow_nan=False)


def test_numpys_numbers_are_as_good_as_pythons(tmp_path: Path) -> None:
    """Also in a folder, and to resume from."""

    def chosen(whole: Any, number: Any) -> dict[str, Any]:
        return {
            "algorithm": srpfl.FedRep(
                head_epochs=whole(2), body_epochs=whole(1), rule=SGD(lr=number(0.125))
            ),
            "participation": srpfl.Doubling(start=whole(1), every=whole(2)),
            "clock": srpfl.FixedExponential(rate=number(0.5), communication=number(2)),
            "rounds": whole(3),
            "seed": whole(1),
            "stop_at": number(1.0),
            "evaluate_every": whole(1),
            "checkpoint_every": whole(1),
            "evaluate_at": [whole(1), whole(3)],
        }

    plain = tiny.simulate(out=tmp_path / "plain", **chosen(int, float))
    numpys = tiny.simulate(out=tmp_path / "numpys", **chosen(np.int32, np.float32))
    again = tiny.simulate(out=tmp_path / "numpys", resume=True, **chosen(np.int64, np.float64))
    assert tiny.same(plain.state.shared, numpys.state.shared)
    assert plain.config == numpys.config == again.config


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": 5}, "name must be a text, not 5"),
        ({"algorithm": srpfl.FedAvg}, r"algorithm must be an object .*: write FedAvg\(\.\.\.\)"),
        (
            {"algorithm": "fedavg"},
            r"algorithm must be an object, not a name: write algorithm=srpfl\.FedAvg\(\)",
        ),
        ({"model": 5}, r"model must be a torch\.nn\.Module or a function that returns one, not 5"),
        ({"model": lambda size: None}, "a function without arguments"),
        ({"rounds": "10"}, "rounds must be a whole number, not '10'"),
        ({"rounds": 10**12}, "a run has at most 10,000,000 rounds"),
        ({"seed": -1}, "the seed must be zero or a positive number"),
        ({"resume": "yes"}, "resume must be True or False, not 'yes'"),
        ({"watchers": srpfl.Watcher()}, "watchers must be a list of watchers"),
        ({"evaluate_at": 5}, "evaluate_at must be a list of rounds, not 5"),
        ({"options": {"lr": math.nan}}, "'options.lr' must be a finite number, not nan"),
        (
            {"options": {"set": [1.0, {"x": math.inf}]}},
            "'options.set.x' must be a finite number, not inf",
        ),
        ({"options": itself()}, "options must be a dict"),
        ({"options": {"a": itself()}}, "nested too deeply"),
    ],
)
def test_the_sentence_says_what_to_give(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        play(**changes)


def test_a_number_of_a_choice_that_is_none_is_named() -> None:
    class Own(srpfl.FedAvg):
        pass

    algorithm = Own(epochs=1)
    object.__setattr__(algorithm, "weighting", math.nan)
    with pytest.raises(ConfigError, match=r"algorithm\.weighting must be a number, not nan"):
        play(algorithm=algorithm)


def test_models_that_no_machine_can_hold_are_one_sentence() -> None:
    for width in (10**7, 10**10, 2**62):
        with pytest.raises(ConfigError, match="not enough memory for this run: make it smaller"):
            play(model=lambda width=width: torch.nn.Linear(width, width))


def test_a_model_that_finds_no_memory_is_not_said_to_be_wrong() -> None:
    class Hungry(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.zeros(1 << 50).sum()

    with pytest.raises(ConfigError, match="not enough memory for this run: make it smaller"):
        play(model=Hungry(4, 3))


def test_what_is_kept_of_a_run_is_json() -> None:
    run = play(participation=Capped())
    assert run.config["participation"]["cap"] == "inf"
    json.dumps(run.config, allow_nan=False)


def test_a_number_too_long_to_be_written_down_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json cannot be written: .* digits"):
        play(out=tmp_path / "run", options={"code": 10**5000})


@dataclass(frozen=True, kw_only=True)
class Capped(srpfl.Everyone):
    """A policy of one's own; infinity means "no cap"."""

    cap: float = math.inf
