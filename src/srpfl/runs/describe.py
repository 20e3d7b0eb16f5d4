"""Choices as JSON, so that a run folder says what the run depends on."""

from __future__ import annotations

import dataclasses
import inspect
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn


def describe(value: Any, around: tuple[Any, ...] = ()) -> Any:
    """A choice as JSON: its class and its fields. What JSON has no word for goes by its content, so
    that two choices that differ do not look the same. An object that is met again inside of itself
    (``around``: what holds the value) is its class alone.

    >>> describe({"folder": PurePath("a/b"), "names": frozenset({"y", "x"})})
    {'folder': 'a/b', 'names': ['x', 'y']}
    """

    def inside(held: Any) -> Any:
        return describe(held, (*around, value))

    if hasattr(value, "__dict__") and any(value is each for each in around):
        return {"kind": type(value).__qualname__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: inside(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if f.metadata.get("told") != "if changed" or getattr(value, f.name) != f.default
        }
        return {"kind": type(value).__name__, **fields}
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(name): inside(item) for name, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((inside(item) for item in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [inside(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, (np.ndarray, torch.Tensor)):
        array = np.ascontiguousarray(torch.as_tensor(value).detach().cpu().numpy())
        return {"kind": type(value).__name__, "shape": list(array.shape), "crc": _crc(array.data)}
    if isinstance(value, FunctionType):
        return _function(value, inside)
    if isinstance(value, partial):
        given = [value.args, value.keywords]
        return {"kind": "partial", "of": inside(value.func), "with": inside(given)}
    if isinstance(value, MethodType):
        return {"kind": "method", "of": inside(value.__func__), "with": inside(value.__self__)}
    if isinstance(value, (type, nn.Module)) or not hasattr(value, "__dict__"):
        return getattr(value, "__qualname__", None) or str(value)
    return {"kind": type(value).__qualname__, **inside(vars(value))}


def _function(function: FunctionType, inside: Callable[[Any], Any]) -> dict[str, Any]:
    """A function by its text, and what it holds on to."""
    code = function.__code__
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):  # typed in, or built
        text = repr(code.co_code)
    # A line of text may hold several functions.
    text += repr(
        (code.co_names, [value for value in code.co_consts if type(value) is not CodeType])
    )
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    usual = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return {
        "kind": function.__qualname__,
        "crc": _crc(text.encode()),
        "with": [inside(each) for each in (*held, *usual)],
    }


def _crc(data: Any) -> str:
    return f"{zlib.crc32(data):08x}"
