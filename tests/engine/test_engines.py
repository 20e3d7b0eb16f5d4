"""What else engines promise: memory, refusals, choice, and nothing kept from job to job."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srpfl.algorithms import Ditto
from srpfl.core.collector import OFTEN, seldom_collected
from srpfl.core.rules import SGD, Gradient, RuleState
from srpfl.core.slots import Slots
from srpfl.core.split import Params
from srpfl.data.base import Samples
from srpfl.engine import LoopEngine, VectorisedEngine, make_engine, stackable
from srpfl.engine.fitting import FittingEngine
from srpfl.engine.programs import Programs
from srpfl.engine.store import Store
from srpfl.engine.workers import WorkersEngine
from srpfl.errors import ConfigError, SrpflWarning

from .cases import CASES, UNEQUAL, distance, images, mlp, play


def test_a_cohort_that_does_not_fit_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["fedrep"]
    whole = play(VectorisedEngine(case.model(), case.data()), case, rounds=1)
    run, sizes = Programs.run, []

    def tight(self, task, carried, *rest):  # type: ignore[no-untyped-def]
        sizes.append(len(next(iter(carried.params.values()))))
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("the device has room for two")
        return run(self, task, carried, *rest)

    monkeypatch.setattr(Programs, "run", tight)
    engine = VectorisedEngine(case.model(), case.data())
    assert distance(play(engine, case, rounds=1), whole) < 1e-5
    assert max(sizes) > 2, "the test never ran out of memory"
    assert engine.phases.most <= 2


def test_on_a_cpu_a_large_cohort_is_trained_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["fedrep"]
    whole = play(VectorisedEngine(case.model(), case.data()), case)
    train, sizes = VectorisedEngine._train, []

    def noting(self, jobs, asked):  # type: ignore[no-untyped-def]
        sizes.append(len(asked))
        return train(self, jobs, asked)

    monkeypatch.setattr(VectorisedEngine, "_train", noting)
    monkeypatch.setattr("srpfl.engine.vectorised.CPU_CLIENTS", 2)
    assert distance(play(VectorisedEngine(case.model(), case.data()), case), whole) < 1e-5
    assert max(sizes) == 2


def test_a_round_leaves_nothing_to_pythons_collector() -> None:
    # What is in a circle stays until the collector comes by, and stacks of clients are large.
    case = CASES["fedrep"]
    engine = VectorisedEngine(case.model(), case.data())
    play(engine, case, rounds=1)  # tracing leaves a few
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.disable()
        play(engine, case, rounds=2)
        gc.collect()
        left = [each for each in gc.garbage if isinstance(each, Tensor)]
    finally:
        gc.enable()
        gc.set_debug(0)
        gc.garbage.clear()
    assert not left


def test_the_collector_is_as_before_when_the_last_run_ends() -> None:
    usual = gc.get_threshold()
    first, second = seldom_collected(), seldom_collected()  # as two runs in threads of their own
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == OFTEN
    second.__exit__(None, None, None)
    assert gc.get_threshold() == usual


def test_memory_too_small_for_one_client_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise torch.OutOfMemoryError("nothing left")

    monkeypatch.setattr(Programs, "run", none_left)
    case = CASES["fedavg"]
    with pytest.raises(torch.OutOfMemoryError):
        play(VectorisedEngine(case.model(), case.data()), case)


class Branching(nn.Module):
    """Does what no stack can do: looks at values."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Odd(768, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x.flatten(1)))
        return logits


class Odd(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        outputs = super().forward(input)
        return outputs if outputs.sum() > 0 else -outputs


def test_a_model_that_cannot_be_stacked_is_refused_by_the_name_of_the_layer() -> None:
    with pytest.raises(ConfigError, match=r"cannot train 'body' .*use engine='loop'"):
        VectorisedEngine(Branching(), images(UNEQUAL))


class Sloping(nn.Linear):
    """In tests alone does what no stack can do: asks for a gradient by its inputs."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            return super().forward(input)
        with torch.enable_grad():
            at = input.detach().clone().requires_grad_()
            (slope,) = torch.autograd.grad(super().forward(at).tanh().sum(), at)
        return super().forward(input + slope)


def test_nor_is_a_model_stacked_that_can_be_trained_but_not_tested_so() -> None:
    model = nn.Sequential(nn.Flatten(), Sloping(768, 4))
    with pytest.raises(ConfigError, match=r"cannot train '1' .*use engine='loop'"):
        VectorisedEngine(model, images(UNEQUAL))


def test_a_model_that_writes_to_its_buffers_is_refused_by_their_name() -> None:
    layer = nn.utils.spectral_norm(nn.Linear(768, 5))
    with pytest.raises(ConfigError, match=r"that writes to its '1[.]weight_[uv]' by itself"):
        VectorisedEngine(nn.Sequential(nn.Flatten(), layer), images(UNEQUAL))


@pytest.mark.slow  # PyTorch's compiler takes seconds to load
def test_what_a_model_has_compiled_is_stacked_as_it_was_written() -> None:
    def model() -> nn.Module:
        body = nn.Sequential(nn.Flatten(), nn.Linear(768, 6), nn.GELU())
        torch.manual_seed(0)
        for value in body.parameters():
            nn.init.normal_(value, std=0.1)
        return nn.Sequential(torch.compile(body, backend="eager"), nn.Linear(6, 4))  # type: ignore[arg-type]

    case = replace(CASES["fedavg"], model=model)
    stacked, alone = (
        play(kind(model(), case.data(), precision="float64"), case, rounds=1)
        for kind in (VectorisedEngine, LoopEngine)
    )
    assert distance(stacked, alone) < 1e-9


def test_auto_falls_back_and_says_so() -> None:
    data = images(UNEQUAL)
    with pytest.warns(SrpflWarning, match=r"'body' \(Linear\).* one after another"):
        engine = make_engine("auto", Branching(), data, device="cpu")
    assert isinstance(engine, FittingEngine)
    assert engine.stacked is None
    whole = make_engine("auto", mlp(), data, device="cpu")
    assert isinstance(whole, FittingEngine)
    assert isinstance(whole.stacked, VectorisedEngine)


def test_what_pytorch_computes_client_by_client_is_named_once() -> None:
    """Its own warnings ask users to write to PyTorch's makers, once for each place in our code."""
    torch.manual_seed(0)
    body = nn.utils.parametrizations.weight_norm(nn.Linear(768, 6))
    model = nn.Sequential(nn.Flatten(), body, nn.Tanh(), nn.Linear(6, 4))
    with pytest.warns(SrpflWarning, match="PyTorch computes weight_norm client by client") as said:
        engine = make_engine("vectorised", model, images(UNEQUAL), device="cpu")
    assert len(said) == 1
    play(engine, replace(CASES["fedavg"], model=lambda: model), rounds=1)  # a warning would fail


@pytest.mark.parametrize("engine", ["auto", "vectorised"])
def test_a_model_is_tried_out_once(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = stackable.draws_itself, list[nn.Module]()
    monkeypatch.setattr(stackable, "draws_itself", lambda *a: calls.append(a[0]) or real(*a))
    make_engine(engine, mlp(), images(UNEQUAL), device="cpu")
    assert len(calls) == 1


@dataclass(frozen=True)
class Suspicious:
    """A rule that looks at values: no step where the gradient is large."""

    def start(self, params: Params, given: Slots) -> RuleState:
        return {}

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        grads = gradient(params)
        if sum(float(grad.square().sum()) for grad in grads.values()) > 1.0:
            return params, state
        return {name: params[name] - 0.01 * grad for name, grad in grads.items()}, state


class Writing(Suspicious):
    """A rule that writes to what it is given, as PyTorch's optimisers do."""

    def step(
        self, gradient: Gradient, params: Params, state: RuleState
    ) -> tuple[Params, RuleState]:
        for name, grad in gradient(params).items():
            params[name].sub_(0.01 * grad)
        return params, state


@pytest.mark.parametrize(("rule", "twin"), [(Suspicious(), None), (Writing(), SGD(weight_decay=0))])
def test_a_rule_that_no_stack_can_take_is_never_carried_out_wrongly(rule: Any, twin: Any) -> None:
    case = replace(CASES["fedavg"], algorithm=Ditto(batch_size=5, rule=rule))
    plain = replace(case, algorithm=Ditto(batch_size=5, rule=twin or rule))
    expected = play(LoopEngine(case.model(), case.data()), plain)
    name = f"the rule {type(rule).__name__}"
    with pytest.raises(ConfigError, match=name):
        play(VectorisedEngine(case.model(), case.data()), case)
    engine = make_engine("auto", case.model(), case.data(), device="cpu")
    with pytest.warns(SrpflWarning, match=name):
        found = play(engine, case)
    assert distance(found, expected) < 1e-5


def test_unknown_names_are_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'vectorised'"):
        make_engine("vectorized", mlp(), images(UNEQUAL))
    with pytest.raises(ConfigError, match="did you mean 'float32'"):
        make_engine("loop", mlp(), images(UNEQUAL), precision="float23")


def test_a_worker_tells_what_went_wrong() -> None:
    class Broken:
        def train(self, jobs: object) -> None:
            raise ConfigError("this job makes no sense")

    case = CASES["fedavg"]
    with (
        WorkersEngine(Broken, case.data(), workers=2) as engine,  # type: ignore[arg-type]
        pytest.raises(ConfigError, match="makes no sense"),
    ):
        play(engine, case)


def test_kept_samples_stay_within_the_budget() -> None:
    class Endless:
        clients, drawn = 10**6, 0

        def train(self, client: int) -> Samples:
            self.drawn += 1
            return Samples(np.full((10, 3), client), np.full(10, client))

    data = Endless()
    store = Store(data, torch.device("cpu"), budget=3 * 10 * 4 * 8)  # type: ignore[arg-type]
    for client in range(50):
        x, y = store.get("train", client)
        assert int(x[0, 0]) == int(y[0]) == client
        assert store.used <= store.budget
    assert data.drawn == 50
    store.get("train", 49)
    assert data.drawn == 50, "the last one is still there"


def test_nothing_of_a_job_is_left_for_the_next() -> None:
    case = CASES["fedrep-dropout"]
    engine = VectorisedEngine(case.model(), case.data())
    first, second = play(engine, case, rounds=2), play(engine, case, rounds=2)
    assert distance(first, second) == 0.0
