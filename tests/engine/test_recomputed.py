"""Blocks that are computed again in the backward pass: the same gradients in less memory."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import srpfl
import tiny
from engine.cases import distance
from engine.test_agreement import reference
from models.test_lora import Reader, check_shared, played, reader, sentences
from srpfl.engine import VectorisedEngine, make_engine
from srpfl.engine.steps import Batch
from srpfl.errors import ConfigError
from srpfl.models import lora, recomputed


def test_a_client_is_trained_the_same_bit_for_bit() -> None:
    plain, again = (reference(f"fedrep-{name}", "float64") for name in ("attention", "recomputed"))
    assert distance(again, plain) == 0.0


@pytest.mark.slow
def test_a_stack_agrees_with_the_plain_loop() -> None:
    model = lora(reader(0.2, layers=2), rank=2)
    choices: dict[str, Any] = {"precision": "float64", "rounds": 1}
    stack = played(recomputed(model, "layers"), engine="vectorised", **choices)
    check_shared(played(model, **choices), stack)


class Live(TorchDispatchMode):
    """The most bytes of tensors that were there at once."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(outputs):
            storage = tensor.untyped_storage() if isinstance(tensor, Tensor) else None
            if storage is not None and storage._cdata not in self.held:
                self.held[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self._gone, storage._cdata)
        self.most = max(self.most, self.now)
        return outputs

    def _gone(self, storage: int) -> None:
        self.now -= self.held.pop(storage)


def most_bytes(model: nn.Module) -> int:
    """Of one gradient of a stack of three clients, computed as on a GPU: without a trace."""
    engine = VectorisedEngine(model, sentences(clients=3, each=4))
    parts = srpfl.FedRep(personal="classifier").split(model)
    stack = {n: v.expand(3, *v.shape) for n, v in (parts.shared | parts.personal).items()}
    held = engine.store.hold("train", [0, 1, 2])
    index = torch.arange(12).reshape(3, 4)
    x = {name: each[index] for name, each in held.x.items()}
    keys = torch.zeros(3, dtype=torch.int64)
    batch = Batch(x, held.y[index], torch.full((3, 4), 0.25), keys, keys == 0)
    with Live() as live:
        engine.phases.whole.objective.losses_and_gradient(stack, {}, {}, {}, batch)
    return live.most


def test_a_stack_of_clients_needs_less_memory() -> None:
    model = lora(Reader(layers=4), rank=2, targets="query")
    assert most_bytes(recomputed(model)) < most_bytes(model) / 2


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.head = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Linear(6, 3)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_() if self.reentrant else x
        logits: Tensor = self.head(checkpoint(self.inner, x, use_reentrant=self.reentrant))
        return logits


@pytest.mark.parametrize("reentrant", [False, True])
def test_pytorchs_own_checkpoints_would_see_other_weights(reentrant: bool) -> None:
    for engine in ("loop", "vectorised", "auto"):
        with pytest.raises(ConfigError, match=r"use srpfl.models.recomputed\(model\) to save"):
            make_engine(engine, Checkpointed(reentrant), tiny.data())


class WrittenOver(nn.Module):
    """PyTorch itself cannot differentiate this."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.inner(x).sigmoid().add_(1.0))
        return logits


def test_a_model_without_a_gradient_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="the model's gradient cannot be computed: one of the"):
        tiny.simulate(model=WrittenOver())


def test_what_cannot_be_computed_again_is_refused() -> None:
    norms = nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))])
    with pytest.raises(ConfigError, match=r"'0[.]0' has buffers"):
        recomputed(nn.Sequential(norms))
    with pytest.raises(ConfigError, match="the model has no part named 'layer'"):
        recomputed(reader(), "layer")
    with pytest.raises(ConfigError, match="has no list of blocks"):
        recomputed(nn.Linear(2, 2))
