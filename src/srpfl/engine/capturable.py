"""What a CUDA graph cannot hold, noticed in a step that is taken before one is captured."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from srpfl.core.devices import on_gpu

aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
MADE = {aten.lift_fresh.default, aten.lift_fresh_copy.default}  # a tensor of Python's numbers
READS = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default}
SIZED = {
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_consecutive.default,
    aten.unique_dim.default,
    aten.bincount.default,
}
INDEXED = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
}


class Capturable(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, notes the first operation that waits for the GPU or copies from the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.against: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        if self.against is None:
            why = _against(func, args, kwargs, outputs)
            if why:
                self.against = f"{_place()} {why}"
        return outputs


def _against(func: Any, args: Any, kwargs: Any, outputs: Any) -> str | None:
    given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    there = [value for value in given if on_gpu(value)]
    if func in COPIES:
        goes = [on_gpu(value) for value in (*given, outputs)]
        return "copies between the host and the GPU" if any(goes) and not all(goes) else None
    if not there:
        return None
    if func in MADE:
        return "sends Python's numbers to the GPU"
    if func in READS:
        return "reads values back from the GPU"
    if func in SIZED:
        return "makes a tensor whose size depends on values"
    if func in INDEXED:
        places = [value for value in tree_leaves(args[1]) if isinstance(value, Tensor)]
        if any(value.dtype in (torch.bool, torch.uint8) for value in places):
            return "makes a tensor whose size depends on values"
        if not all(map(on_gpu, places)):
            return "copies between the host and the GPU"
    return None


def _place() -> str:
    """The line of the model's own code that is being run, if it is one."""
    passed = {"torch", "srpfl", *sys.stdlib_module_names}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "torch")  # code that torch.fx wrote has none
        if name == "srpfl.engine.steps":
            break
        if name.partition(".")[0] not in passed:
            return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno},"
        frame = frame.f_back
    return "one of its layers"
