"""Our GPU kernels against PyTorch's operations, on shapes that fit no tile.

On a CPU triton can interpret them, slowly, where it is installed: TRITON_INTERPRET=1, with a NumPy
below 2.5.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from srpfl.data.base import Transform
from srpfl.engine import head_kernel, kernels
from srpfl.engine.convolution import plain, stacked
from srpfl.engine.inputs import inputs
from srpfl.engine.precision import Precision

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and kernels.available()
pytestmark = [] if INTERPRETED else [pytest.mark.gpu]
DEVICE = "cpu" if INTERPRETED else "cuda"
# Rounding: sums of some hundred products in float32, or products of numbers rounded to 2⁻⁸.
NEAR = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """PyTorch's own convolutions take TF32 unless they are told not to."""
    with Precision.of("float32").switched():
        yield


def relative(found: Tensor, expected: Tensor) -> float:
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm().clamp(min=1e-30))


# Clients, images, channels in and out, height, width, filter.
SHAPES = [
    (1, 1, 3, 6, 12, 12, (5, 5)),
    (2, 3, 6, 16, 9, 11, (3, 2)),
    (3, 2, 1, 5, 8, 7, (3, 3)),
    (5, 1, 7, 33, 6, 6, (1, 1)),
    (7, 2, 2, 3, 5, 9, (2, 4)),
    (1, 17, 3, 65, 6, 6, (3, 3)),
    (2, 1, 4, 128, 7, 7, (2, 2)),
]


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("inner", [False, True], ids=["first", "inner"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolution_relu_and_pooling(shape: Any, inner: bool, dtype: torch.dtype) -> None:
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("triton's interpreter does not multiply in bfloat16")
    clients, count, i, o, height, width, size = shape
    torch.manual_seed(0)
    x = torch.randn(clients, count, i, height, width, device=DEVICE).to(dtype)
    weight = (torch.randn(clients, o, i, *size, device=DEVICE) / 3).to(dtype).requires_grad_()
    bias = torch.randn(clients, o, device=DEVICE).to(dtype).requires_grad_()
    by = [x.requires_grad_(), weight, bias] if inner else [weight, bias]
    outputs = stacked(x, weight, bias)
    # In bfloat16, of the same rounded numbers: which pixel wins a square must not hang on rounding.
    exact = [tensor.detach().float().requires_grad_(tensor.requires_grad) for tensor in by]
    given = exact if inner else [x.float(), *exact]
    expected = torch.vmap(plain)(*given)
    assert relative(outputs, expected) < NEAR[dtype]
    slope = torch.randn_like(expected)
    found = torch.autograd.grad((outputs.float() * slope.to(dtype).float()).sum(), by)
    wanted = torch.autograd.grad((expected * slope.to(dtype).float()).sum(), exact)
    for mine, yours in zip(found, wanted, strict=True):
        assert relative(mine, yours) < NEAR[dtype]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize(
    ("clients", "batch", "features", "classes", "steps"),
    [(1, 1, 3, 2, 1), (3, 5, 64, 10, 4), (5, 17, 33, 3, 3), (7, 2, 84, 62, 2)],
)
def test_linear_heads(
    clients: int, batch: int, features: int, classes: int, steps: int, momentum: float
) -> None:
    torch.manual_seed(0)
    lr, decay = 0.1, 0.01
    x = torch.randn(steps, clients, batch, features, device=DEVICE)
    y = torch.randint(classes, (steps, clients, batch), device=DEVICE)
    taken = torch.arange(1, clients + 1, device=DEVICE).clamp(max=steps)  # some are through early
    shares = torch.full((steps, clients, batch), 1 / batch, device=DEVICE)
    weight = torch.randn(clients, classes, features, device=DEVICE) / 3
    bias = torch.randn(clients, classes, device=DEVICE) / 3
    speeds = (torch.zeros_like(weight), torch.zeros_like(bias)) if momentum else None
    first = weight.double(), bias.double()
    losses = head_kernel.train_heads(
        x, y, shares, taken, weight, bias, speeds, (lr, momentum, decay), low=False
    )
    for client in range(clients):
        own = [part[client].clone().requires_grad_() for part in first]
        pace = [torch.zeros_like(part) for part in own]
        total = 0.0
        for step in range(int(taken[client])):
            outputs = F.linear(x[step, client].double(), *own)
            loss = F.cross_entropy(outputs, y[step, client])
            total += float(loss.detach())
            grads = list(torch.autograd.grad(loss, own))
            grads[0] = grads[0] + decay * own[0].detach()  # biases do not decay
            pace = [momentum * p + g for p, g in zip(pace, grads, strict=True)]
            moved = zip(own, pace, strict=True)
            own = [(part - lr * p).detach().requires_grad_() for part, p in moved]
        assert relative(weight[client], own[0]) < NEAR[torch.float32]
        assert relative(bias[client], own[1]) < NEAR[torch.float32]
        assert float(losses[client]) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 8, 8), (4, 6, 9)], ids=str)
@pytest.mark.parametrize("moves", [False, True])
def test_images_moved_and_normalised(
    shape: tuple[int, ...], moves: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(0, 256, (11, *shape), dtype=np.uint8)).to(DEVICE)
    index = torch.tensor([3, 0, 10, 3, 7], device=DEVICE)
    transform = Transform((0.4,), (0.3,), crop=2, flip=True)
    drawn = rng.integers(0, [5, 5, 2], (5, 3)).astype(np.int16)
    augment = torch.from_numpy(drawn).to(DEVICE) if moves else None
    low = Precision.of(precision)
    chosen = x[index] if augment is None else transform.augment(x[index], augment.long())
    expected = transform.prepare(chosen, torch.float32)
    if INTERPRETED:
        monkeypatch.setattr("srpfl.engine.inputs.on_gpu", lambda _x: True)
    found = inputs(transform, x, index, augment, low)
    assert found.dtype == low.computed
    assert relative(found, expected) < NEAR[low.computed]
