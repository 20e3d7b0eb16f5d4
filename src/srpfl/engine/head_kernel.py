"""A GPU kernel that trains linear heads: all steps of a client in one program."""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-any-return,import-not-found"
# mypy: disable-error-code="import-untyped"
import torch
from torch import Tensor

from srpfl.engine.kernels import fit, jit, precision

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:  # PyTorch without GPUs comes without it, and nothing here is called
    triton = None


@jit
def _heads(
    x, y, shares, steps, w, bias, speed_w, speed_bias, losses, lr, momentum, decay,
    B: tl.constexpr, F: tl.constexpr, K: tl.constexpr,
    BB: tl.constexpr, BF: tl.constexpr, BK: tl.constexpr,
    MOMENTUM: tl.constexpr, PRECISION: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(0).to(tl.int64)
    clients = tl.num_programs(0)
    b, f, k = tl.arange(0, BB), tl.arange(0, BF), tl.arange(0, BK)
    at = client * K * F + k[:, None] * F + f[None, :]
    inside = (k < K)[:, None] & (f < F)[None, :]
    low = tl.bfloat16 if LOW else tl.float32
    weights = tl.load(w + at, mask=inside, other=0.0)
    shift = tl.load(bias + client * K + k, mask=k < K, other=0.0)
    if MOMENTUM:
        pace = tl.load(speed_w + at, mask=inside, other=0.0)
        shift_pace = tl.load(speed_bias + client * K + k, mask=k < K, other=0.0)
    total = 0.0
    for step in range(tl.load(steps + client)):
        batch = (step * clients + client) * B
        rows = batch + b
        mask = (b < B)[:, None] & (f < F)[None, :]
        features = tl.load(x + rows[:, None] * F + f[None, :], mask=mask, other=0.0).to(low)
        target = tl.load(y + rows, mask=b < B, other=0)
        share = tl.load(shares + rows, mask=b < B, other=0.0)
        logits = tl.dot(features, tl.trans(weights.to(low)), input_precision=PRECISION)
        logits = tl.where((k < K)[None, :], logits + shift[None, :], float("-inf"))
        logits -= tl.max(logits, 1)[:, None]
        odds = tl.exp(logits)
        mass = tl.sum(odds, 1)
        right = target[:, None] == k[None, :]
        total += tl.sum(share * (tl.log(mass) - tl.sum(tl.where(right, logits, 0.0), 1)))
        wrong = (odds / mass[:, None] - right.to(tl.float32)) * share[:, None]
        grad = tl.dot(tl.trans(wrong.to(low)), features, input_precision=PRECISION)
        grad += decay * weights
        shift_grad = tl.sum(wrong, 0)
        if MOMENTUM:
            pace = momentum * pace + grad
            shift_pace = momentum * shift_pace + shift_grad
            weights -= lr * pace
            shift -= lr * shift_pace
        else:
            weights -= lr * grad
            shift -= lr * shift_grad
    tl.store(w + at, weights, mask=inside)
    tl.store(bias + client * K + k, shift, mask=k < K)
    if MOMENTUM:
        tl.store(speed_w + at, pace, mask=inside)
        tl.store(speed_bias + client * K + k, shift_pace, mask=k < K)
    tl.store(losses + client, total)


def heads_fit(classes: int, features: int, batch: int) -> bool:
    """Whether a head and its momentum have room in one program's registers, and the features of a
    batch in the 64 KiB that its threads share on any GPU.

    >>> heads_fit(10, 512, 10), heads_fit(2, 2048, 10), heads_fit(10, 10, 2000)
    (True, False, False)
    """
    return max(fit(classes), fit(batch)) * fit(features) <= 1 << 14


def train_heads(
    x: Tensor,
    y: Tensor,
    shares: Tensor,
    steps: Tensor,
    weight: Tensor,
    bias: Tensor,
    speeds: tuple[Tensor, Tensor] | None,
    rates: tuple[float, float, float],
    low: bool,
) -> Tensor:
    """All steps of SGD on cross entropy for linear heads [clients, classes, features], in place.

    Inputs are [steps, clients, batch, ...]; a client takes its first ``steps``. Returns each
    client's sum of losses. Rates are the learning rate, momentum and weight decay.
    """
    _, clients, batch, features = x.shape
    classes = weight.shape[1]
    losses = torch.empty(clients, dtype=torch.float32, device=x.device)
    wide, deep = fit(classes), fit(features)
    _heads[(clients,)](
        x, y, shares, steps, weight, bias, *(speeds or (weight, bias)), losses, *rates,
        B=batch, F=features, K=classes, BB=fit(batch), BF=deep, BK=wide,
        MOMENTUM=speeds is not None, PRECISION=precision(), LOW=low,
        num_warps=8 if wide * deep > 4096 else 4,
    )  # fmt: skip
    return losses
