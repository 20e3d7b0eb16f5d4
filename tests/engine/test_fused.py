"""Convolution, ReLU and pooling as one: only where the model stays the same function.

In double precision the fused layer computes with PyTorch's own operations, so what is fused can be
tried on a CPU; its kernels are tried on a GPU, against the loop.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrizations

from srpfl.core import devices
from srpfl.engine import kernels
from srpfl.engine.capturable import Capturable
from srpfl.engine.convolution import ConvReluPool, with_fused_convolutions
from srpfl.engine.layers import with_stackable_layers


class Net(nn.Module):
    def __init__(self, conv: nn.Module | None = None, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.conv, self.pool = conv or nn.Conv2d(3, 4, 3), pool or nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.pool(self.conv(x).relu())
        return pooled


class Spare(Net):
    """With a layer that nobody calls."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 2)


class Twice(Net):
    """One convolution at two places."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.conv(x))


class Backwards(Net):
    """Its layers are not called in the order in which they were made."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.first(x))


def hooked() -> nn.Module:
    net = Net()
    net.conv.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    return net


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "plain": (Net, 1),
    "lenet": (lambda: nn.Sequential(Net(), Net(nn.Conv2d(4, 5, 3))), 2),
    "backwards": (Backwards, 1),
    "spare": (Spare, 0),
    "twice": (Twice, 0),
    "hooked": (hooked, 0),
    "wide": (lambda: Net(nn.Conv2d(3, 130, 3)), 0),
    "parametrised": (lambda: Net(parametrizations.weight_norm(nn.Conv2d(3, 4, 3))), 0),
    "dilated pool": (lambda: Net(pool=nn.MaxPool2d(2, dilation=2)), 0),
    "overlapping pool": (lambda: Net(pool=nn.MaxPool2d(2, stride=1)), 0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_fused_model_is_the_same_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "available", lambda: True)
    make, count = MODELS[name]
    torch.manual_seed(0)
    net = make().double()
    x = torch.randn(2, 3, 14, 14, dtype=torch.float64)
    fused = with_fused_convolutions(with_stackable_layers(net)).double()
    assert sum(isinstance(module, ConvReluPool) for module in fused.modules()) == count
    assert torch.allclose(fused(x), net(x), rtol=1e-12, atol=1e-12)
    assert {n for n, _ in fused.named_parameters()} == {n for n, _ in net.named_parameters()}


class Chosen(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


def test_what_no_graph_holds_is_noticed_in_code_of_torch_fx_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "GPUS", ("cpu",))
    with Capturable() as tried:
        fx.symbolic_trace(Chosen())(torch.ones(3))
    assert tried.against is not None
    assert "size depends on values" in tried.against
