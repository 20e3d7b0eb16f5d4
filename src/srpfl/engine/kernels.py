"""GPU kernels: convolution, bias, ReLU and 2x2 max-pooling in one, for a stack of clients.

A stack of clients has a convolution with other weights for every client. As a grouped convolution
it is slow, and as im2col and batched products it moves many times the bytes of its inputs; pooling
right away keeps three quarters of the outputs out of memory too. Images are channels-last, so that
a row of a filter meets one contiguous window of an image.

Shapes: x [clients, images, H, W, CI], weights [clients, KH·KW·CI, CO], outputs [clients, images,
PH, PW, CO]. With each output goes the number of the pixel that won its 2x2 square (4: ReLU off),
which is all that the gradients need to know.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-any-return,import-not-found"
# mypy: disable-error-code="import-untyped"
from typing import NamedTuple

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:  # PyTorch without GPUs comes without it, and nothing here is called
    triton = None


class Tiles(NamedTuple):
    """How a kernel cuts its work: result rows and columns, a piece of the sum; warps, stages."""

    m: int
    n: int
    k: int
    warps: int = 8
    stages: int = 3


# By kernel and bytes per number.
TILES = {
    ("forward", 2): Tiles(64, 64, 64),
    ("forward", 4): Tiles(64, 64, 32),
    ("inputs", 2): Tiles(128, 64, 64),
    ("inputs", 4): Tiles(128, 64, 32),
    ("weights", 2): Tiles(128, 128, 32),
    ("weights", 4): Tiles(128, 128, 32),
}


def available() -> bool:
    return triton is not None


def _jit(function):
    return triton.jit(function) if triton is not None else function


@_jit
def _forward(
    x, w, bias, out, which, M, H, W, PH, PW, stride_x,
    CI: tl.constexpr, CO: tl.constexpr, KH: tl.constexpr, WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    here, wanted = m < M, n < CO
    image, inside = m // (PH * PW), m % (PH * PW)
    row, column = 2 * (inside // PW), 2 * (inside % PW)
    corner = ((image.to(tl.int64) * H + row) * W + column) * CI
    x += client * stride_x
    w += client * KH * WINDOW * CO
    first = tl.zeros((BM, BN), dtype=tl.float32)
    second = tl.zeros((BM, BN), dtype=tl.float32)
    third = tl.zeros((BM, BN), dtype=tl.float32)
    fourth = tl.zeros((BM, BN), dtype=tl.float32)
    for kh in range(KH):
        for start in range(0, WINDOW, BK):
            in_window = start + k < WINDOW
            mask = here[:, None] & in_window[None, :]
            at = x + (corner + kh * W * CI)[:, None] + (start + k)[None, :]
            rows = (kh * WINDOW + start + k)[:, None] * CO + n[None, :]
            filters = tl.load(w + rows, mask=in_window[:, None] & wanted[None, :], other=0.0)
            a = tl.load(at, mask=mask, other=0.0)
            first = tl.dot(a, filters, first, input_precision=PRECISION)
            a = tl.load(at + CI, mask=mask, other=0.0)
            second = tl.dot(a, filters, second, input_precision=PRECISION)
            a = tl.load(at + W * CI, mask=mask, other=0.0)
            third = tl.dot(a, filters, third, input_precision=PRECISION)
            a = tl.load(at + W * CI + CI, mask=mask, other=0.0)
            fourth = tl.dot(a, filters, fourth, input_precision=PRECISION)
    best, winner = first, tl.zeros((BM, BN), dtype=tl.int32)
    winner = tl.where(second > best, 1, winner)
    best = tl.maximum(best, second)
    winner = tl.where(third > best, 2, winner)
    best = tl.maximum(best, third)
    winner = tl.where(fourth > best, 3, winner)
    best = tl.maximum(best, fourth)
    best += tl.load(bias + client * CO + n, mask=wanted, other=0.0)[None, :].to(tl.float32)
    winner = tl.where(best > 0, winner, 4)
    best = tl.maximum(best, 0.0)
    to = (client * M + m)[:, None] * CO + n[None, :]
    mask = here[:, None] & wanted[None, :]
    tl.store(out + to, best.to(out.dtype.element_ty), mask=mask)
    tl.store(which + to, winner.to(tl.uint8), mask=mask)


@_jit
def _towards_inputs(
    grad, which, w, out, M, H, W, PH, PW,
    CI: tl.constexpr, CO: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    here, wanted = m < M, n < CI
    image, inside = m // (H * W), m % (H * W)
    row, column = inside // W, inside % W
    images = M // (H * W)
    grad += client * images * PH * PW * CO
    which += client * images * PH * PW * CO
    w += client * KH * KW * CI * CO
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for tap in range(KH * KW):
        y, x = row - tap // KW, column - tap % KW
        valid = here & (y >= 0) & (y < 2 * PH) & (x >= 0) & (x < 2 * PW)
        pixel = (y % 2) * 2 + x % 2
        square = (image.to(tl.int64) * PH + y // 2) * PW + x // 2
        for start in range(0, CO, BK):
            channels = start + k < CO
            at = square[:, None] * CO + (start + k)[None, :]
            mask = valid[:, None] & channels[None, :]
            won = tl.load(which + at, mask=mask, other=4).to(tl.int32)
            g = tl.load(grad + at, mask=mask, other=0.0)
            g = tl.where(won == pixel[:, None], g, 0.0).to(grad.dtype.element_ty)
            rows = (tap * CI + n)[None, :] * CO + (start + k)[:, None]
            filters = tl.load(w + rows, mask=channels[:, None] & wanted[None, :], other=0.0)
            total = tl.dot(g, filters, total, input_precision=PRECISION)
    to = (client * M + m)[:, None] * CI + n[None, :]
    tl.store(out + to, total.to(out.dtype.element_ty), mask=here[:, None] & wanted[None, :])


@_jit
def _towards_weights(
    grad, which, x, out, M, H, W, PH, PW, blocks, per_split,
    CI: tl.constexpr, CO: tl.constexpr, KH: tl.constexpr, WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # Rows of the result are output channels, columns a piece of one filter row's window, and the
    # sum runs over the pixels before pooling.
    client = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2).to(tl.int64)
    kh, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    o = tl.arange(0, BM)
    n = block * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    channels, in_window = o < CO, n < WINDOW
    images = M // (4 * PH * PW)
    grad += client * images * PH * PW * CO
    which += client * images * PH * PW * CO
    x += client * images * H * W * CI
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(split * per_split, (split + 1) * per_split, BK):
        m = start + k
        here = m < M
        image, inside = m // (4 * PH * PW), m % (4 * PH * PW)
        row, column = inside // (2 * PW), inside % (2 * PW)
        pixel = (row % 2) * 2 + column % 2
        square = (image * PH + row // 2) * PW + column // 2
        at = square[None, :] * CO + o[:, None]
        mask = here[None, :] & channels[:, None]
        won = tl.load(which + at, mask=mask, other=4).to(tl.int32)
        g = tl.load(grad + at, mask=mask, other=0.0)
        g = tl.where(won == pixel[None, :], g, 0.0).to(grad.dtype.element_ty)
        corner = ((image * H + row + kh) * W + column) * CI
        window = tl.load(
            x + corner[:, None] + n[None, :], mask=here[:, None] & in_window[None, :], other=0.0
        )
        total = tl.dot(g, window, total, input_precision=PRECISION)
    clients = tl.num_programs(1)
    to = ((split * clients + client) * KH + kh) * WINDOW
    tl.store(
        out + (to + n)[None, :] * CO + o[:, None],
        total,
        mask=channels[:, None] & in_window[None, :],
    )


def forward(x: Tensor, w: Tensor, bias: Tensor, kernel: int) -> tuple[Tensor, Tensor]:
    """Pooled outputs, and which pixel won. ``kernel`` is KH."""
    clients, images, height, width, i = x.shape
    o, window = w.shape[2], w.shape[1] // kernel
    ph, pw = (height - kernel + 1) // 2, (width - window // i + 1) // 2
    out = x.new_empty(clients, images, ph, pw, o)
    which = torch.empty(out.shape, dtype=torch.uint8, device=x.device)
    m = images * ph * pw
    tiles = TILES["forward", x.element_size()]
    bn, bk = _fit(o, tiles.n), _fit(window, tiles.k)
    _forward[(triton.cdiv(m, tiles.m), clients, triton.cdiv(o, bn))](
        x, w, bias, out, which, m, height, width, ph, pw, images * height * width * i,
        CI=i, CO=o, KH=kernel, WINDOW=window, BM=tiles.m, BN=bn, BK=bk, PRECISION=_precision(),
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return out, which


def towards_inputs(
    grad: Tensor, which: Tensor, w: Tensor, shape: torch.Size, kernel: int
) -> Tensor:
    """The gradient by the images, which have that shape."""
    clients, images, height, width, i = shape
    ph, pw, o = grad.shape[2:]
    out = grad.new_empty(shape)
    m = images * height * width
    tiles = TILES["inputs", grad.element_size()]
    bn, bk = _fit(i, tiles.n), _fit(o, tiles.k)
    _towards_inputs[(triton.cdiv(m, tiles.m), clients, triton.cdiv(i, bn))](
        grad, which, w, out, m, height, width, ph, pw,
        CI=i, CO=o, KH=kernel, KW=w.shape[1] // (kernel * i), BM=tiles.m, BN=bn, BK=bk,
        PRECISION=_precision(), num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return out


def towards_weights(
    grad: Tensor, which: Tensor, x: Tensor, shape: torch.Size, kernel: int
) -> Tensor:
    """The gradient by the weights, which have that shape, in single precision."""
    clients, images, height, width, i = x.shape
    ph, pw, o = grad.shape[2:]
    window = shape[1] // kernel
    m = images * 4 * ph * pw
    tiles = TILES["weights", x.element_size()]
    bm, bn = _fit(o, tiles.m), _fit(window, tiles.n)
    assert o <= bm, "one tile holds all output channels"
    blocks = triton.cdiv(window, bn)
    # Enough programs to fill the card, each with a part of the sum.
    splits = max(1, min(m // 512, 528 // (clients * kernel * blocks)))
    per_split = triton.cdiv(triton.cdiv(m, splits), tiles.k) * tiles.k
    out = torch.empty(splits, *shape, dtype=torch.float32, device=x.device)
    _towards_weights[(kernel * blocks, clients, splits)](
        grad, which, x, out, m, height, width, ph, pw, blocks, per_split,
        CI=i, CO=o, KH=kernel, WINDOW=window, BM=bm, BN=bn, BK=tiles.k, PRECISION=_precision(),
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return out.sum(0) if splits > 1 else out[0]


def _fit(size: int, most: int) -> int:
    """A tile's side for that size: a power of two, and no less than the matrix units take."""
    return min(most, max(16, triton.next_power_of_2(size)))


def _precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
