"""Habits of models that nobody wrote for stacks: stacked rightly, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from srpfl.algorithms import FedAvg
from srpfl.core.backbone import copied
from srpfl.core.initial import initial_model
from srpfl.engine.loop import LoopEngine
from srpfl.engine.vectorised import VectorisedEngine
from srpfl.errors import ConfigError
from srpfl.loop.simulation import simulate
from srpfl.task import Classification, MultiLabel, NextToken, Task

from . import zoo
from .cases import Case, distance, play


class Words(nn.Module):
    def __init__(self, **how: bool) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(zoo.TOKENS, 5, **how), nn.Linear(5, 4)  # type: ignore[arg-type]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.head((self.embed(ids) * mask[..., None]).sum(1))
        return logits


class Numbers(nn.Module):
    """Keeps what it computed, and has a layer of the old kind, which computes its weight."""

    def __init__(self, at_gradient: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.body = nn.utils.weight_norm(nn.Linear(5, 6))  # type: ignore[no-untyped-call]
        self.head, self.at_gradient = nn.Linear(6, 4), at_gradient
        self.kept: list[Tensor] = []

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        hidden = self.body(x).tanh()
        self.kept = [hidden]
        if self.at_gradient is not None and hidden.requires_grad:
            hidden.register_hook(self.at_gradient)
        logits: Tensor = self.head(hidden)
        return logits


class Frozen(nn.Module):
    """BatchNorm as pretrained models are trained further: with the statistics that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, ids: Tensor, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.body(x)).relu())
        return logits


@pytest.mark.filterwarnings("ignore:.*weight_norm", "ignore:There is a performance drop")
@pytest.mark.parametrize(
    "model", [lambda: Words(sparse=True), Numbers, Frozen], ids=["sparse", "keeping", "frozen"]
)
def test_a_stack_agrees_with_the_loop(model: Callable[[], nn.Module]) -> None:
    data = zoo.masked_text if model not in (Numbers, Frozen) else zoo.pairs
    case = Case(zoo.seeded(model), FedAvg(batch_size=5), make=data)
    stacked, alone = (
        play(kind(case.model(), case.data(), precision="float64"), case, rounds=2)
        for kind in (VectorisedEngine, LoopEngine)
    )
    assert distance(stacked, alone) < 1e-9


def backward() -> nn.Module:
    layer = nn.Linear(5, 6)
    layer.register_full_backward_hook(lambda _layer, grads, _outputs: (2 * grads[0],))
    return nn.Sequential(layer, nn.Linear(6, 4))


@pytest.mark.filterwarnings("ignore:.*weight_norm", "ignore:There is a performance drop")
@pytest.mark.parametrize(
    ("model", "data", "why"),
    [
        (lambda: Words(scale_grad_by_freq=True), zoo.masked_text, "'embed' .* fills up a batch"),
        (lambda: Numbers(lambda grad: 2 * grad), zoo.pairs, "a hook on a gradient"),
        (backward, zoo.labels, "'0' .*its hooks on gradients"),
    ],
    ids=["frequency", "hook", "layer's hook"],
)
def test_what_a_stack_would_get_wrong_is_refused(
    model: Callable[[], nn.Module], data: Callable[[list[int]], object], why: str
) -> None:
    case = Case(model, FedAvg(), sizes=[4, 7], make=data)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=why):
        VectorisedEngine(case.model(), case.data())


class Contrast(Classification):
    """Others of the batch stand against each sample."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return -(outputs @ outputs.T).log_softmax(1).diagonal()


class Reads(Classification):
    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        each = nn.functional.cross_entropy(outputs, y, reduction="none")
        return each if float(outputs.detach().mean()) > 0 else 2 * each


@pytest.mark.parametrize(
    ("task", "why"), [(Contrast(), "Contrast .* other samples"), (Reads(), "looks at values")]
)
def test_a_loss_that_would_see_other_clients_is_refused(task: Task, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        VectorisedEngine(zoo.Both(), zoo.pairs([4, 7]), task=task)


@pytest.mark.parametrize("part", ["x", "y"])
def test_a_token_beyond_the_vocabulary_is_found_before_the_first_round(part: str) -> None:
    """On a GPU it would end the process."""
    data = zoo.text([4, 7])
    pool = data.train_pool
    (pool.x if part == "x" else pool.y)[data.train_parts[1][-1], 2] = 14
    with pytest.raises(ConfigError, match=r"does not take all whole numbers .*14\): .*out of"):
        simulate(
            data=data,
            model=zoo.Tied,
            algorithm=FedAvg(),
            task=NextToken(),
            engine="loop",
            device="cpu",
        )


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_a_model_that_was_called_before_can_be_copied() -> None:
    model = Numbers()
    model(torch.zeros(1), torch.zeros(1, 5))
    [kept] = copied(model).get_submodule("").kept
    assert not kept.requires_grad


def test_a_hook_on_a_parameter_is_refused() -> None:
    model = nn.Linear(5, 4)
    model.weight.register_hook(lambda grad: 0 * grad)
    for given in (model, lambda: model):
        with pytest.raises(ConfigError, match=r"'weight' has a hook .* in a rule instead"):
            initial_model(given, seed=0)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_script_is_refused() -> None:
    script = torch.jit.script(nn.Linear(5, 4))  # type: ignore[no-untyped-call]
    with pytest.raises(ConfigError, match="the model that the script was made from"):
        simulate(
            data=zoo.labels([4, 7]), model=lambda: script, algorithm=FedAvg(), task=MultiLabel()
        )


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(torch.fft.rfft(x).abs())
        return logits


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_what_has_no_bfloat16_is_one_sentence(engine: str) -> None:
    with pytest.raises(ConfigError, match=r"has no bfloat16 \(.*BFloat16\): use precision='tf32'"):
        simulate(
            data=zoo.labels([4, 7]),
            model=Spectral,
            algorithm=FedAvg(),
            task=MultiLabel(),
            engine=engine,
            device="cpu",
            precision="bfloat16",
        )
