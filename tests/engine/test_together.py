"""Runs that are played together come out as each does alone."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srpfl
import tiny
from srpfl.data.base import Pooled, Samples
from srpfl.data.joined import Joined
from srpfl.engine import draws, phases
from srpfl.engine.cohort import Cohort
from srpfl.engine.features import Passes
from srpfl.engine.loop import LoopEngine
from srpfl.engine.phases import Phases
from srpfl.engine.programs import Programs
from srpfl.engine.vectorised import VectorisedEngine
from srpfl.errors import ConfigError, DivergedError
from srpfl.runs.records import RoundRecord
from srpfl.runs.run import Run

from .cases import CASES, images, relative

# Rounding alone: every difference of order, data or state is many orders larger.
DOUBLE, SINGLE = 1e-9, 1e-4
SIZES = ((3, 17, 8, 12), (9, 5, 12))  # of the first run's clients and of the second's
NAMES = [
    "fedavg",
    "fedrep",
    "fedrep-adam",
    "fedrep-dropout-augment",
    "fedrep-two-layers",
    "fedrep-weight-only",
    "fedper-two-phases",
    "lg-fedavg",
    "hf-maml",
]


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One stack for everyone also on a CPU; the clients in each piece of work."""
    run, seen = Programs.run, []

    def noted(self: Programs, task: Any, carried: Any, *rest: Any) -> torch.Tensor:
        seen.append(len(next(iter(carried.params.values()))))
        return run(self, task, carried, *rest)

    monkeypatch.setattr(Programs, "run", noted)
    monkeypatch.setattr(Phases, "stack_size", lambda self, params: 100)
    return seen


def choices(name: str, number: int, **changes: Any) -> dict[str, Any]:
    """One of two runs: with its own data, initial weights, speeds and numbers of samples."""
    case = CASES[name]
    return {
        "data": images(SIZES[number], case.transform, seed=number),
        "model": case.model(),
        "algorithm": replace(case.algorithm, tuning_epochs=1),
        "rounds": 3,
        "evaluate_every": 2,
        "seed": number,
        "engine": "vectorised",
        "device": "cpu",
        "precision": "float64",
        **changes,
    }


def seen(record: RoundRecord) -> RoundRecord:
    """All of a record that no rounding can change."""
    return replace(record, loss=0.0)


def distance(one: Run, other: Run) -> float:
    """The largest relative difference between two runs' weights and losses."""
    assert one.state is not None
    assert other.state is not None
    assert one.parts is not None
    assert other.parts is not None
    assert one.parts.trained.keys() == other.parts.trained.keys()
    pairs = [(one.state.shared, other.state.shared)]
    pairs += [(one.parts.of(client), other.parts.of(client)) for client in one.parts.trained]
    losses = [torch.tensor([record.loss for record in run.rounds]) for run in (one, other)]
    return max([relative(a[name], b[name]) for a, b in pairs for name in a] + [relative(*losses)])


def check(run: object, expected: Run, tolerance: float = DOUBLE) -> None:
    assert isinstance(run, Run), run
    assert run.config == expected.config
    assert [seen(record) for record in run.rounds] == [seen(record) for record in expected.rounds]
    assert distance(run, expected) < tolerance
    if tolerance == DOUBLE:
        assert run.evaluations == expected.evaluations


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_among_others_is_what_it_is_alone(name: str, rows: list[int]) -> None:
    results = srpfl.simulate_together([choices(name, number) for number in (0, 1)])
    for number, result in enumerate(results):
        check(result, srpfl.simulate(**choices(name, number, engine="loop")))
    assert max(rows) > max(map(len, SIZES)), "their clients were never in one stack"


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu_too(name: str, precision: str) -> None:
    runs = [choices(name, number, precision=precision) for number in (0, 1)]
    results = srpfl.simulate_together([{**run, "device": "cuda"} for run in runs])
    for run, result in zip(runs, results, strict=True):
        expected = srpfl.simulate(**{**run, "engine": "loop"})
        check(result, expected, DOUBLE if precision == "float64" else SINGLE)


def test_three_rounds_in_single_precision() -> None:
    runs = [choices("fedrep", number, rounds=3, precision="float32") for number in (0, 1)]
    for run, result in zip(runs, srpfl.simulate_together(runs), strict=True):
        check(result, srpfl.simulate(**run), SINGLE)


def test_a_run_that_ends_or_is_evaluated_earlier_does_not_disturb(rows: list[int]) -> None:
    few = srpfl.Doubling(start=2, every=1)
    short = choices("fedrep", 0, participation=few, rounds=1, evaluate_at=[])
    long = choices("fedrep", 1, rounds=4, evaluate_at=[1, 3], evaluations=["local"])
    other_work = choices("lg-fedavg", 1)
    results = srpfl.simulate_together([short, long, other_work])
    for run, result in zip((short, long, other_work), results, strict=True):
        check(result, srpfl.simulate(**{**run, "engine": "loop"}))
    assert 2 + len(SIZES[1]) in rows, "two clients of the first run and all of the second's"


def first_runs_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Joined, "number", lambda self, part, client: client)


def first_runs_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(jobs: list[object], *rest: object) -> draws.Draws:
        return draws.draw([jobs[0]] * len(jobs), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(phases, "draw", same)


def first_runs_body(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Passes.features_by_job

    def same(self: Any, body: Any, cohort: Cohort, runs: Any, *rest: Any) -> torch.Tensor:
        return original(self, body, cohort, np.zeros_like(runs), *rest)

    monkeypatch.setattr(Passes, "features_by_job", same)


def first_runs_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Cohort.spread

    def same(self: Cohort, names: list[str]) -> None:
        for part in self.common.values():
            part.update(self.common[0])
        original(self, names)

    monkeypatch.setattr(Cohort, "spread", same)


def neighbours_momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Phases._moments

    def rolled(self: Phases, *given: Any) -> Any:
        return {
            slot: {name: value.roll(1, 0) for name, value in values.items()}
            for slot, values in original(self, *given).items()
        }

    monkeypatch.setattr(Phases, "_moments", rolled)


@pytest.mark.parametrize(
    ("leak", "name"),
    [
        (first_runs_data, "fedrep"),
        (first_runs_order, "fedrep"),
        (first_runs_order, "fedrep-dropout-augment"),
        (first_runs_body, "fedrep"),
        (first_runs_body, "fedrep-dropout-augment"),
        (first_runs_weights, "fedavg"),
        (neighbours_momentum, "fedper-two-phases"),
    ],
)
def test_a_leak_between_runs_is_noticed(
    monkeypatch: pytest.MonkeyPatch, leak: Callable[[pytest.MonkeyPatch], None], name: str
) -> None:
    runs = [choices(name, number, rounds=1, evaluate_every=0) for number in (0, 1)]
    expected = srpfl.simulate(**{**runs[1], "engine": "loop"})
    leak(monkeypatch)
    _, result = srpfl.simulate_together(runs)
    assert isinstance(result, Run)
    assert distance(result, expected) > 1000 * DOUBLE


def small(number: int, **changes: Any) -> dict[str, Any]:
    """A run that takes a moment."""
    return {
        "data": tiny.data(clients=4 + number),
        "model": tiny.model(),
        "algorithm": srpfl.FedRep(head_epochs=1, body_epochs=1, tuning_epochs=1),
        "rounds": 3,
        "seed": number,
        "engine": "vectorised",
        "device": "cpu",
        "precision": "float64",
        **changes,
    }


def with_samples(data: Pooled, change: Callable[[Samples], Samples]) -> Pooled:
    return replace(data, train_pool=change(data.train_pool))


def test_a_run_that_diverges_leaves_the_others_alone() -> None:
    data = with_samples(tiny.data(), lambda pool: Samples(pool.x * np.float32(1e30), pool.y))
    broken = small(0, data=data)
    result, *others = srpfl.simulate_together([broken, small(1), small(2)])
    with pytest.raises(DivergedError) as expected:
        srpfl.simulate(**broken)
    assert isinstance(result, DivergedError)
    assert str(result) == str(expected.value)
    for number, other in enumerate(others, start=1):
        check(other, srpfl.simulate(**small(number, engine="loop")))


class Unreliable:
    """Data that cannot be read any more once the run has begun."""

    def __init__(self) -> None:
        self.inner, self.gone = tiny.data(), False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def train(self, client: int) -> Samples:
        if self.gone:
            raise OSError("the disk is gone")
        return self.inner.train(client)


def test_an_error_in_common_work_comes_to_the_run_that_caused_it() -> None:
    data = Unreliable()

    class Breaks(srpfl.Watcher):
        def begin(self, name: str, rounds: int, done: int) -> None:
            data.gone = True

    broken = small(0, data=data, watchers=[Breaks()])
    result, other = srpfl.simulate_together([broken, small(1)])
    assert isinstance(result, OSError)
    check(other, srpfl.simulate(**small(1, engine="loop")))


def test_runs_that_do_not_fit_are_split(monkeypatch: pytest.MonkeyPatch, rows: list[int]) -> None:
    run = Programs.run

    def tight(self: Programs, task: Any, carried: Any, *rest: Any) -> torch.Tensor:
        losses = run(self, task, carried, *rest)
        if len(losses[0]) > 3:
            raise torch.OutOfMemoryError("the device has room for three")
        return losses

    monkeypatch.setattr(Programs, "run", tight)
    for number, result in enumerate(srpfl.simulate_together([small(0), small(1)])):
        check(result, srpfl.simulate(**small(number, engine="loop")))
    assert max(rows) == 9, "the test never ran out of memory"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_each_run_keeps_a_folder_as_if_it_were_alone(tmp_path: Path) -> None:
    srpfl.simulate_together([small(number, out=tmp_path / f"{number}") for number in (0, 1)])
    for number in (0, 1):
        joined, own = tmp_path / f"{number}", tmp_path / f"{number}-alone"
        srpfl.simulate(**small(number, out=own))
        assert files(joined) == files(own)
        for name in ("config.json", "partition.json"):
            assert (joined / name).read_bytes() == (own / name).read_bytes()
        both = zip(*(lines(folder / "rounds.jsonl") for folder in (joined, own)), strict=True)
        for one, other in both:
            assert one.pop("loss") == pytest.approx(other.pop("loss"), rel=DOUBLE)
            assert json.dumps(one) == json.dumps(other)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Interrupt(srpfl.Watcher):
    """Ctrl-C after the first round."""

    def round(self, record: RoundRecord) -> None:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("where", ["in a run", "in the engine"])
def test_ctrl_c_ends_all_and_each_can_be_resumed(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()
    runs = [small(number, rounds=5, out=tmp_path / f"{number}") for number in (0, 1)]
    watched = {**runs[1], "watchers": [Interrupt()] if where == "in a run" else []}
    with monkeypatch.context() as patch:
        if where == "in the engine":
            patch.setattr(VectorisedEngine, "_test", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            srpfl.simulate_together([runs[0], watched])
    assert threading.active_count() == before
    assert all(len(Run.load(tmp_path / f"{number}").rounds) < 5 for number in (0, 1))
    again = srpfl.simulate_together([{**run, "resume": True} for run in runs])
    for number, result in enumerate(again):
        check(result, srpfl.simulate(**small(number, rounds=5, engine="loop")))


def test_runs_at_different_rounds_go_on_together(tmp_path: Path, rows: list[int]) -> None:
    started = small(0, out=tmp_path / "run")

    class Stop(srpfl.Watcher):
        def round(self, record: RoundRecord) -> None:
            if record.round == 2:
                raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        srpfl.simulate(**started, watchers=[Stop()])
    rows.clear()
    results = srpfl.simulate_together([{**started, "resume": True}, small(1)])
    for number, result in enumerate(results):
        check(result, srpfl.simulate(**small(number, engine="loop")))
    assert 4 + 5 in rows


def test_engines_that_train_one_by_one_play_one_by_one() -> None:
    runs = [small(number, engine="loop") for number in (0, 1)]
    for run, result in zip(runs, srpfl.simulate_together(runs), strict=True):
        expected = srpfl.simulate(**run)
        check(result, expected)
        assert distance(result, expected) == 0.0  # type: ignore[arg-type]


class Scaled(torch.nn.Module):
    """Its scale shows neither in its text nor in its weights."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.net, self.scale = tiny.model(), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.net(self.scale * x)
        return outputs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": srpfl.models.MLP(4, (9, 5), classes=3)}, "models of the same shape"),
        ({"model": Scaled(2.0)}, "models of the same shape"),
        ({"data": tiny.data(features=5)}, "data of one kind"),
        ({"precision": "float32"}, "the same task, engine, device and precision"),
        ({"data": tiny.data(classes=4)}, "data of one kind"),
        ({"round": 3}, "unknown argument of simulate 'round': did you mean 'rounds'?"),
    ],
)
def test_what_cannot_be_trained_together_is_refused(changes: dict[str, Any], message: str) -> None:
    given = {"model": Scaled(1.0)} if isinstance(changes.get("model"), Scaled) else {}
    with pytest.raises(ConfigError, match=message):
        srpfl.simulate_together([small(0, **given), small(1, **changes)])


def test_a_model_that_does_not_fit_is_refused_as_it_is_alone() -> None:
    runs = [small(number, model=srpfl.models.MLP(7, (8,), classes=3)) for number in (0, 1)]
    with pytest.raises(ConfigError, match="does not take samples of shape"):
        srpfl.simulate_together(runs)


def test_an_engine_of_one_run_is_not_shared() -> None:
    engine = LoopEngine(tiny.model(), tiny.data())
    with pytest.raises(ConfigError, match="name it"):
        srpfl.simulate_together([small(0, engine=engine), small(1, engine=engine)])
