"""NumPy's file format, read by hand: nothing is allocated that the header merely promises."""

from __future__ import annotations

import re

import numpy as np
import torch

HEADER = 1024  # bytes that the format may add to an array's own
LARGEST = 1e12  # of a weight: beyond it squares and sums would overflow sooner or later

_MAGIC = b"\x93NUMPY"
_FORM = re.compile(
    rb"\{'descr': '([^']{1,8})', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \}\s*"
)


class Unreadable(Exception):
    """The bytes are not the array that they should be; the text says why."""


def tensor(data: bytes, like: torch.Tensor) -> torch.Tensor:
    """An array of the shape and type of ``like``, all finite, from the bytes of a .npy file.

    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> np.save(file, np.ones(3, dtype=np.float32))
    >>> tensor(file.getvalue(), torch.zeros(3))
    tensor([1., 1., 1.])
    """
    wanted = np.dtype(str(like.dtype).removeprefix("torch."))
    if len(data) > like.numel() * max(8, wanted.itemsize) + HEADER:
        raise Unreadable("is larger than it should be")
    descr, fortran, shape, start = _header(data)
    if descr != wanted.str:
        raise Unreadable(f"is of type {descr} and not {wanted}")
    if shape != tuple(like.shape):
        raise Unreadable(f"has the shape {shape} and not {tuple(like.shape)}")
    if len(data) - start != like.numel() * wanted.itemsize:
        raise Unreadable("cannot be read (its length is not that of its shape)")
    values = np.frombuffer(data, dtype=wanted, offset=start)
    if wanted.kind == "f" and values.size:
        low, high = float(values.min()), float(values.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            raise Unreadable("has values that are not finite")
        if max(-low, high) > LARGEST:
            raise Unreadable(f"has values beyond {LARGEST:g}")
    values = values.reshape(shape, order="F" if fortran else "C")
    return torch.from_numpy(np.array(values, order="C"))


def _header(data: bytes) -> tuple[str, bool, tuple[int, ...], int]:
    """Type, order and shape as the header says, and where the values begin."""
    if data[:6] != _MAGIC or data[6:8] not in (b"\x01\x00", b"\x02\x00"):
        raise Unreadable("cannot be read (it is not an array of NumPy's)")
    width = 2 if data[6] == 1 else 4
    length = int.from_bytes(data[8 : 8 + width], "little")
    start = 8 + width + length
    form = _FORM.fullmatch(data[8 + width : start]) if length <= HEADER else None
    if form is None or len(data) < start:
        raise Unreadable("cannot be read (its header is not one that NumPy writes for numbers)")
    descr, fortran, shape = form.groups()
    numbers = [part.strip() for part in shape.decode().split(",")]
    sizes = tuple(int(part) for part in numbers if part and len(part) < 19)
    return descr.decode("latin-1"), fortran == b"True", sizes, start
