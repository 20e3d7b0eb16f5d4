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
    ("forward", 2): Tiles(64, 64, 32, warps=4, stages=4),
    ("forward", 4): Tiles(128, 64, 32),
    ("inputs", 2): Tiles(64, 64, 64, warps=4),
    ("inputs", 4): Tiles(64, 64, 64, warps=4),
    ("weights", 2): Tiles(128, 128, 32, warps=4),
    ("weights", 4): Tiles(128, 64, 32, warps=2),
}


def available() -> bool:
    return triton is not None


def jit(function):
    return triton.jit(function) if triton is not None else function


@jit
def _forward(
    x, w, bias, out, which, M, H, W, PH, PW, stride_x,
    CI: tl.constexpr, CO: tl.constexpr, KH: tl.constexpr, WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
    NOTES: tl.constexpr,
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
    best = tl.maximum(tl.maximum(first, second), tl.maximum(third, fourth))
    shift = tl.load(bias + client * CO + n, mask=wanted, other=0.0)[None, :].to(tl.float32)
    to = (client * M + m)[:, None] * CO + n[None, :]
    mask = here[:, None] & wanted[None, :]
    if NOTES:
        winner = tl.where(
            first == best, 0, tl.where(second == best, 1, tl.where(third == best, 2, 3))
        )
        winner = tl.where(best + shift > 0, winner, 4)
        tl.store(which + to, winner.to(tl.uint8), mask=mask)
    best = tl.maximum(best + shift, 0.0)
    tl.store(out + to, best.to(out.dtype.element_ty), mask=mask)


@jit
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


@jit
def _towards_weights(
    grad, which, x, out, M, H, W, PH, PW, per_split,
    CI: tl.constexpr, CO: tl.constexpr, KH: tl.constexpr, WINDOW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # Rows of the result are output channels, columns places in the filter, and the sum runs over
    # the pixels before pooling.
    client = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2).to(tl.int64)
    o = tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    channels, in_filter = o < CO, n < KH * WINDOW
    shift = (n // WINDOW) * W * CI + n % WINDOW
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
        corner = ((image * H + row) * W + column) * CI
        mask = here[:, None] & in_filter[None, :]
        window = tl.load(x + corner[:, None] + shift[None, :], mask=mask, other=0.0)
        total = tl.dot(g, window, total, input_precision=PRECISION)
    to = (split * tl.num_programs(1) + client) * KH * WINDOW
    mask = channels[:, None] & in_filter[None, :]
    tl.store(out + (to + n)[None, :] * CO + o[:, None], total, mask=mask)


@jit
def _windows(
    x, out, LENGTH, WIDTH, CI: tl.constexpr, KW: tl.constexpr, SIDE: tl.constexpr, B: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * B + tl.arange(0, B)
    column, place = at // SIDE, at % SIDE
    there = (column < LENGTH) & (place < CI * KW)
    value = tl.load(x + row * WIDTH * CI + column * CI + place, mask=there, other=0.0)
    tl.store(out + row * LENGTH * SIDE + at, value, mask=column < LENGTH)


@jit
def _prepared(
    x, index, augment, mean, std, out, PAD,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, MOVES: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * B + tl.arange(0, B)
    channel, column, row = at % C, at // C % W, at // (C * W)
    wanted = row < H
    from_row, from_column = row, column
    if MOVES:
        flip = tl.load(augment + 3 * image + 2).to(tl.int32)
        from_column = tl.where(flip > 0, W - 1 - column, column)
        from_row += tl.load(augment + 3 * image).to(tl.int32) - PAD
        from_column += tl.load(augment + 3 * image + 1).to(tl.int32) - PAD
    there = (from_row >= 0) & (from_row < H) & (from_column >= 0) & (from_column < W) & wanted
    source = x + tl.load(index + image) * (C * H * W)
    value = tl.load(source + (channel * H + from_row) * W + from_column, mask=there, other=0)
    value = value.to(tl.float32) / 255
    value = (value - tl.load(mean + channel)) / tl.load(std + channel)
    tl.store(out + image * (C * H * W) + at, value.to(out.dtype.element_ty), mask=wanted)


def prepared(
    x: Tensor,
    index: Tensor,
    augment: Tensor | None,
    padding: int,
    mean: Tensor,
    std: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Chosen images of bytes [images, C, H, W], moved as drawn and normalised, channels last."""
    _, channels, height, width = x.shape
    out = torch.empty(len(index), height, width, channels, dtype=dtype, device=x.device)
    block = min(4096, triton.next_power_of_2(out[0].numel()))
    _prepared[(len(index), triton.cdiv(out[0].numel(), block))](
        x, index, x if augment is None else augment, mean, std, out, padding,
        C=channels, H=height, W=width, MOVES=augment is not None, B=block,
    )  # fmt: skip
    return out


def windows(x: Tensor, width: int, side: int) -> Tensor:
    """What a filter row of that width meets at each place, side by side, filled up to ``side``."""
    *outer, columns, i = x.shape
    length = columns - width + 1
    out = x.new_empty(*outer, length, side)
    block = min(1024, triton.next_power_of_2(length * side))
    _windows[(out[..., 0, 0].numel(), triton.cdiv(length * side, block))](
        x, out, length, columns, CI=i, KW=width, SIDE=side, B=block
    )
    return out


def forward(
    x: Tensor, w: Tensor, bias: Tensor, kernel: int, notes: bool
) -> tuple[Tensor, Tensor | None]:
    """Pooled outputs and, with notes, which pixel won. ``kernel`` is KH."""
    clients, images, height, width, i = x.shape
    o, window = w.shape[2], w.shape[1] // kernel
    ph, pw = (height - kernel + 1) // 2, (width - window // i + 1) // 2
    out = x.new_empty(clients, images, ph, pw, o)
    which = torch.empty(out.shape, dtype=torch.uint8, device=x.device) if notes else None
    m = images * ph * pw
    tiles = TILES["forward", x.element_size()]
    bn, bk = fit(o, tiles.n), fit(window, tiles.k)
    _forward[(triton.cdiv(m, tiles.m), clients, triton.cdiv(o, bn))](
        x, w, bias, out, which if notes else out, m, height, width, ph, pw,
        images * height * width * i,
        CI=i, CO=o, KH=kernel, WINDOW=window, BM=tiles.m, BN=bn, BK=bk, PRECISION=precision(),
        NOTES=notes, num_warps=tiles.warps, num_stages=tiles.stages,
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
    bn, bk = fit(i, tiles.n), fit(o, tiles.k)
    _towards_inputs[(triton.cdiv(m, tiles.m), clients, triton.cdiv(i, bn))](
        grad, which, w, out, m, height, width, ph, pw,
        CI=i, CO=o, KH=kernel, KW=w.shape[1] // (kernel * i), BM=tiles.m, BN=bn, BK=bk,
        PRECISION=precision(), num_warps=tiles.warps, num_stages=tiles.stages,
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
    bm, bn = fit(o, tiles.m), fit(shape[1], tiles.n)
    assert o <= bm, "one tile holds all output channels"
    blocks = triton.cdiv(shape[1], bn)
    # Enough programs to fill the card, each with a part of the sum.
    splits = max(1, min(m // 512, 528 // (clients * blocks)))
    per_split = triton.cdiv(triton.cdiv(m, splits), tiles.k) * tiles.k
    out = torch.empty(splits, *shape, dtype=torch.float32, device=x.device)
    _towards_weights[(blocks, clients, splits)](
        grad, which, x, out, m, height, width, ph, pw, per_split,
        CI=i, CO=o, KH=kernel, WINDOW=window, BM=bm, BN=bn, BK=tiles.k, PRECISION=precision(),
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return out.sum(0) if splits > 1 else out[0]


def fit(size: int, most: int = 1 << 30) -> int:
    """A tile's side for that size: a power of two, and no less than the matrix units take.

    >>> fit(2), fit(65), fit(65, 64)
    (16, 128, 64)
    """
    return min(most, max(16, 1 << (size - 1).bit_length()))


def precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
