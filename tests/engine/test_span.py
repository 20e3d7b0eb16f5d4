"""Which first layers are trained in the span of the samples, and that they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from srpfl.algorithms import FedAvg
from srpfl.engine.dropout import with_keyed_dropout
from srpfl.engine.layers import with_stackable_layers
from srpfl.engine.precision import called
from srpfl.engine.span import FirstLayer, Span, SpannedObjective, first_layer
from srpfl.engine.steps import Objective
from srpfl.engine.vectorised import VectorisedEngine
from srpfl.task import Classification

from .cases import CASES, Case, lenet, mlp, mlp_with_dropout, play


class Twice(nn.Module):
    """Uses its inputs, or its first layer, in a second place too."""

    def __init__(self, again: Callable[[nn.Linear, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.again = nn.Linear(768, 768), nn.Linear(768, 4), again

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        logits: Tensor = self.last(self.again(self.first, x, self.first(x)))
        return logits


class Reshaped(nn.Module):
    """Asks for its inputs in one shape only."""

    def __init__(self, prepare: Callable[[Tensor], Tensor] = lambda x: x) -> None:
        super().__init__()
        self.first, self.prepare = nn.Linear(768, 4), prepare

    def forward(self, x: Tensor) -> Tensor:
        sums: Tensor = self.first(self.prepare(x).reshape(-1, 3 * 16 * 16))
        return sums


class Gated(nn.Module):
    """Begins with zeros, which hide that the inputs are used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(768, 768), nn.Linear(768, 4)
        self.gate = nn.Parameter(torch.zeros(()))
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        logits: Tensor = self.last(self.first(x) + self.gate * x)
        return logits


class Temperature(nn.Module):
    """Is called without inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.ones(()))

    def forward(self) -> Tensor:
        return self.value


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.temperature = nn.Linear(768, 4), Temperature()

    def forward(self, x: Tensor) -> Tensor:
        sums: Tensor = self.first(input=x.flatten(1)) * self.temperature()
        return sums


class Otherwise(Reshaped):
    """Does something else with its inputs while it is trained."""

    def forward(self, x: Tensor) -> Tensor:
        sums: Tensor = self.first((x.clamp(-9, 9) if self.training else x).flatten(1))
        return sums


class Tokens(nn.Module):
    """Parts of a sample as if they were samples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(256, 256), nn.Linear(768, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.first(x.reshape(-1, 256)).relu().reshape(-1, 768))
        return logits


class Halved(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input / 2)


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    model[1].register_forward_hook(lambda _module, _inputs, outputs: outputs / 2)
    return model


def tied() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 768), nn.Linear(768, 768))
    model[2].weight = model[1].weight
    return model


def found(model: nn.Module) -> str | None:
    model = with_stackable_layers(with_keyed_dropout(model))
    layer = first_layer(model, Objective(called(model), Classification()))
    return layer and layer.weight


@pytest.mark.parametrize(
    ("model", "weight"),
    [
        (mlp(), "fc1.weight"),
        (mlp_with_dropout(), "1.weight"),
        (Twice(lambda _first, _x, sums: sums.relu()), "first.weight"),
        (lenet(), None),
        (Twice(lambda _first, x, sums: sums + x), None),
        (Twice(lambda first, _x, sums: first(sums)), None),
        (Reshaped(), None),
        (Reshaped(lambda x: x / 2), None),
        (Reshaped(lambda x: x.flip(-1)), None),
        (Reshaped(lambda x: x.mul_(2)), None),
        (nn.Sequential(nn.Flatten(), Halved(768, 4)), None),
        (hooked(), None),
        (Gated(), None),
        (Scaled(), None),
        (Otherwise(), None),
        (Tokens(), None),
        (nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(768, 4)), None),
        (tied(), None),
        (nn.Linear(16, 4), None),
    ],
)
def test_the_first_layer_is_known_by_the_models_code(model: nn.Module, weight: str | None) -> None:
    assert found(model) == weight


@pytest.mark.parametrize(
    ("name", "used"),
    [("fedrep", True), ("hf-maml", True), ("fedavg-few-and-many", True), ("fedavg-adam", False)],
)
def test_it_is_trained_in_the_span_where_that_pays(
    monkeypatch: pytest.MonkeyPatch, name: str, used: bool
) -> None:
    sizes: list[int] = []
    original = Span.of

    def noted(*given: Any) -> Span:
        sizes.extend(given[3])
        return original(*given)

    monkeypatch.setattr(Span, "of", noted)
    case = CASES[name]
    play(VectorisedEngine(case.model(), case.data()), case)
    assert bool(sizes) == used
    assert all(size < 100 for size in sizes)


def test_it_pays_for_many_steps_of_a_wide_layer_on_few_samples() -> None:
    objective = SpannedObjective(called(mlp()), Classification(), weight="fc1.weight")
    wide = FirstLayer("fc1.weight", 784, 512, objective)
    assert wide.pays(samples=75, steps=40, batch=10)
    assert not wide.pays(samples=75, steps=1, batch=10)
    assert not wide.pays(samples=800, steps=400, batch=10)
    assert not FirstLayer("fc1.weight", 64, 64, objective).pays(samples=29, steps=15, batch=10)


def test_stacks_are_of_clients_of_about_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks: list[list[int]] = []
    original = Span.of
    monkeypatch.setattr(Span, "of", lambda *given: stacks.append(given[3]) or original(*given))
    case = Case(mlp, FedAvg(epochs=3, batch_size=10), (60, *[5] * 12))
    play(VectorisedEngine(case.model(), case.data(), together=100), case)
    assert [60] in stacks
    assert all(max(sizes) <= 2 * min(sizes) for sizes in stacks)
