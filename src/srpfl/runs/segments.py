"""Files of clients' parts: one row per client, one column per tensor, written once.

A file is safetensors with a stacked tensor for each name and the clients' numbers in ascending
order. A row is read by itself, so that a client's part costs what it weighs, however many others
there are.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from srpfl.core.split import Params
from srpfl.runs.files import NO_LINK

CLIENTS = "@clients"  # neither a parameter nor a slot is called so
TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}

IntArray = NDArray[np.int64]


class Rows(NamedTuple):
    """Some clients and their tensors, stacked in the same order."""

    clients: IntArray
    columns: Params


class _Column(NamedTuple):
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]  # of one row
    start: int  # of the first row in the file
    size: int  # bytes of a row


@dataclass(frozen=True)
class Segment:
    """A file of rows. Nobody changes it, so what was read once stays true."""

    path: Path

    def row(self, place: int) -> Params:
        """The tensors of one row."""
        handle = os.open(self.path, os.O_RDONLY | NO_LINK)
        try:
            return {each.name: _tensor(handle, each, place) for each in self._columns}
        finally:
            os.close(handle)

    def rows(self, wanted: Callable[[IntArray], NDArray[np.bool_]]) -> Rows:
        """Several rows at once: a function says which of the clients' are wanted."""
        with safe_open(self.path, framework="pt") as file:
            clients = file.get_tensor(CLIENTS).numpy()
            places = np.flatnonzero(wanted(clients))
            chosen = torch.from_numpy(places)
            names = [name for name in file.keys() if name != CLIENTS]  # noqa: SIM118
            columns = {name: file.get_tensor(name)[chosen] for name in names}
        return Rows(clients[places], columns)

    def clients(self, wanted: Params) -> IntArray | None:
        """The clients of the rows; None if these are not rows of such tensors."""
        with safe_open(self.path, framework="pt") as file:
            columns = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            [count] = columns.pop(CLIENTS).get_shape()
            if columns.keys() != wanted.keys() or not all(
                _fits(columns[name], count, value) for name, value in wanted.items()
            ):
                return None
            found: IntArray = file.get_tensor(CLIENTS).numpy()
        if found.dtype != np.int64 or (np.diff(found) <= 0).any() or (found < 0).any():
            raise ValueError(f"{self.path.name} does not say whose rows it holds")
        return found

    @cached_property
    def _columns(self) -> list[_Column]:
        with open(os.open(self.path, os.O_RDONLY | NO_LINK), "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            told: dict[str, Any] = json.loads(file.read(length))
        found = []
        for name, column in told.items():
            if name in (CLIENTS, "__metadata__"):
                continue
            dtype, (_, *shape) = TYPES[column["dtype"]], column["shape"]
            size = math.prod(shape) * dtype.itemsize
            start = 8 + length + column["data_offsets"][0]
            found.append(_Column(name, dtype, tuple(shape), start, size))
        return found


def _fits(column: Any, count: int, wanted: Tensor) -> bool:
    """Whether a column has so many values like this one. Types may differ: a run in double
    precision begins with single numbers."""
    told = TYPES[column.get_dtype()].is_floating_point == wanted.is_floating_point()
    return told and column.get_shape() == [count, *wanted.shape]


def _tensor(handle: int, column: _Column, place: int) -> Tensor:
    if not column.size:
        return torch.empty(column.shape, dtype=column.dtype)
    data = bytearray(os.pread(handle, column.size, column.start + place * column.size))
    return torch.frombuffer(data, dtype=column.dtype).view(column.shape)


def stacked(parts: Mapping[int, Params]) -> Rows:
    """Clients' parts as rows."""
    clients = sorted(parts)
    names = parts[clients[0]] if clients else {}
    columns = {name: _stack([parts[client][name] for client in clients]) for name in names}
    return Rows(np.array(clients, dtype=np.int64), columns)


def joined(blocks: Sequence[Rows]) -> Rows:
    """Several blocks as one, by client."""
    clients = np.concatenate([block.clients for block in blocks])
    order = np.argsort(clients)
    chosen = torch.from_numpy(order)
    names = blocks[0].columns
    columns = {n: torch.cat([_same(n, blocks, b) for b in blocks])[chosen] for n in names}
    return Rows(clients[order], columns)


def tensors_of(rows: Rows) -> Params:
    """What a file of these rows holds."""
    return {**rows.columns, CLIENTS: torch.from_numpy(rows.clients)}


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    if len({value.dtype for value in tensors}) > 1:
        raise ValueError("clients' parts have several types of numbers")
    if len({value.device for value in tensors}) > 1:
        tensors = [value.cpu() for value in tensors]
    return torch.stack([value.detach() for value in tensors]).cpu()


def _same(name: str, blocks: Sequence[Rows], block: Rows) -> Tensor:
    value = block.columns[name]
    if value.dtype != blocks[0].columns[name].dtype:
        raise ValueError("clients' parts have several types of numbers")
    return value
