"""A device that pretends to be a GPU, for machines without one.

Its tensors are kept by the CPU, but PyTorch takes them for another device's: whoever mixes them
with tensors of the CPU gets an error, as on a GPU. A graph is captured as a list of operations on
fixed memory and replayed as one; while it is captured nothing may be read back or sent over.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
import torch.utils.backend_registration as registration
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from srpfl.core import devices

NAME = "pretend"
MOVE = nn.Module.to
aten = torch.ops.aten
MOVES = {aten._to_copy.default, aten.copy_.default}
# What hands a number to Python, and what has a size that depends on values.
READS = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default}
SIZED = {aten.nonzero.default, aten.masked_select.default, aten._unique2.default}
DRAWS = {aten.bernoulli_.float, aten.normal_.default, aten.uniform_.default, aten.rand.default}


class MixedError(RuntimeError):
    """Tensors of two devices in one operation."""


class CaptureError(Exception):
    """Something that a graph cannot hold, and that the engine should have seen before."""


class OnDevice(Tensor):
    """A tensor of the device; its numbers are in ``raw``."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> OnDevice:
        made = Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device(f"{NAME}:0"),
        )
        made.raw = raw
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise MixedError(f"{func} outside of the pretended device")


class Graph:
    """Operations in order, on memory that stays."""

    def __init__(self) -> None:
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def replay(self) -> None:
        for func, args, kwargs, outputs in self.operations:
            given = {v.untyped_storage()._cdata for v in tensors((args, kwargs))}
            again = func(*args, **kwargs)
            for place, value in zip(tensors(outputs), tensors(again), strict=True):
                if place.untyped_storage()._cdata not in given:  # neither a view nor in place
                    place.copy_(value)


class PretendedDevice(TorchDispatchMode):
    """While it is on, there is such a device."""

    def __init__(self) -> None:
        super().__init__()
        self.capturing: Graph | None = None
        self.graphs = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        there = [v for v in tensors((args, kwargs)) if isinstance(v, OnDevice)]
        here = [v for v in tensors((args, kwargs)) if not isinstance(v, OnDevice)]
        to = kwargs.get("device")
        goes = bool(there) if to is None else torch.device(to).type == NAME
        if there and func not in MOVES and any(value.ndim for value in here):
            raise MixedError(f"{func} has tensors of the CPU and of the device")
        if self.capturing is not None:
            self._check_capture(func, there, here, goes)
        raw_args, raw_kwargs = tree_map(raw, args), tree_map(raw, kwargs)
        outputs = func(*raw_args, **raw_kwargs)
        if self.capturing is not None and goes and torch.Tag.inplace_view not in func.tags:
            # Each as it is now: a later transpose_() changes the tensor's shape, not its memory.
            now = tree_map(as_it_is, (func, raw_args, raw_kwargs, outputs))
            self.capturing.operations.append(now)
        if func is aten.copy_.default:
            return args[0]
        if not goes or func in READS:
            return outputs
        wrapped = tree_map(lambda v: OnDevice(v) if isinstance(v, Tensor) else v, outputs)
        return return_and_correct_aliasing(func, args, kwargs, wrapped)

    def _check_capture(
        self, func: Any, there: list[Tensor], here: list[Tensor], goes: bool
    ) -> None:
        if func in READS | SIZED and there:
            raise CaptureError(f"{func} reads values back while a graph is captured")
        if func in MOVES and ((here and goes) or (there and not goes)):
            raise CaptureError(f"{func} copies between devices while a graph is captured")
        if func in DRAWS:
            raise CaptureError(f"{func} draws from PyTorch's stream while a graph is captured")


@cache
def registered() -> torch.library.Library:
    """What ``torch.tensor(numbers, device="pretend")`` is made of: no mode sees it. Not done before
    it is needed, because a process that has such a device cannot be forked any more."""
    registration._setup_privateuseone_for_python_backend(NAME)
    getattr(torch, NAME).get_amp_supported_dtype = list  # asked for when blocks are computed again
    library = torch.library.Library("aten", "IMPL")

    def empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_rest: Any) -> OnDevice:
        return OnDevice(torch.empty_strided(size, stride, dtype=dtype))

    def copy_from(given: Tensor, to: Tensor, non_blocking: bool = False) -> Tensor:
        raw(to).copy_(raw(given))
        return to

    library.impl("empty_strided", empty_strided, "PrivateUse1")
    library.impl("_copy_from", copy_from, "PrivateUse1")
    return library


def tensors(tree: Any) -> list[Tensor]:
    return [value for value in tree_leaves(tree) if isinstance(value, Tensor)]


def raw(value: Any) -> Any:
    if isinstance(value, OnDevice):
        return value.raw
    if isinstance(value, torch.device) and value.type == NAME:
        return torch.device("cpu")
    return value


def as_it_is(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def moved(module: nn.Module, *where: Any, **how: Any) -> nn.Module:
    """``module.to``, with one parameter where there was one. On its way to a GPU a parameter stays
    the same object; PyTorch makes a new one for a tensor of another class, and unties what is
    tied."""
    before = list(module.named_parameters(remove_duplicate=False))
    MOVE(module, *where, **how)
    now: dict[int, nn.Parameter] = {}
    for name, old in before:
        place, _, last = name.rpartition(".")
        layer = module.get_submodule(place)
        setattr(layer, last, now.setdefault(id(old), getattr(layer, last)))
    return module


@contextmanager
def pretended(patch: pytest.MonkeyPatch) -> Iterator[PretendedDevice]:
    """A device named "pretend" that the engine takes for a GPU."""
    mode = PretendedDevice()

    @contextmanager
    def capture(graph: Graph, pool: object = None, stream: object = None) -> Iterator[None]:
        mode.capturing, mode.graphs = graph, mode.graphs + 1
        try:
            yield
        finally:
            mode.capturing = None

    @contextmanager
    def on_stream(_stream: object) -> Iterator[None]:
        yield

    stream = types.SimpleNamespace(wait_stream=lambda _other: None)
    memory = types.SimpleNamespace(total_memory=1 << 34)
    patch.setattr(devices, "GPUS", (NAME,))
    patch.setattr(nn.Module, "to", moved)
    patch.setattr(torch.cuda, "CUDAGraph", Graph)
    patch.setattr(torch.cuda, "graph", capture)
    patch.setattr(torch.cuda, "stream", on_stream)
    patch.setattr(torch.cuda, "Stream", lambda: stream)
    patch.setattr(torch.cuda, "current_stream", lambda: stream)
    patch.setattr(torch.cuda, "current_device", lambda: 0)
    patch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    patch.setattr(torch.cuda, "set_stream", lambda _stream: None)
    patch.setattr(torch.cuda, "synchronize", lambda: None)
    patch.setattr(torch.cuda, "get_device_properties", lambda _device: memory)
    with mode:
        yield mode
