"""What nobody trains: it is in memory once, and known by its hash."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

RECOMPUTED = "recomputed"  # marks a block whose inner results engines need not keep


def copied(module: nn.Module, still: Callable[[str], bool] | None = None) -> nn.Module:
    """A copy whose frozen parameters are new ones over the same memory: a backbone is there once,
    however many copies of the model there are. ``still`` says which ones are to be frozen; those
    that are already, by default. Nobody writes into frozen weights; to move or convert the copy
    leaves the original alone.

    >>> net = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))
    >>> other = copied(net)
    >>> [mine.data_ptr() == yours.data_ptr() for mine, yours in zip(
    ...     net.parameters(), other.parameters())]
    [True, True, False, False]
    """
    named = list(module.named_parameters(remove_duplicate=False))
    moving = {id(v) for n, v in named if (v.requires_grad if still is None else not still(n))}
    memo: dict[int, Any] = {
        id(value): nn.Parameter(value.detach(), requires_grad=False)
        for _, value in named
        if id(value) not in moving and type(value) is nn.Parameter
    }
    memo |= {id(value): value.detach() for value in _computed(module)}
    made: nn.Module = copy.deepcopy(module, memo)
    return made


def _computed(module: nn.Module) -> list[Tensor]:
    """What layers keep of an earlier pass, or compute before each one (the old weight_norm):
    PyTorch copies no tensor that has a history."""
    held = [value for part in module.modules() for value in tree_leaves(list(vars(part).values()))]
    return [value for value in held if isinstance(value, Tensor) and not value.is_leaf]


def numbers_of(module: nn.Module) -> torch.dtype:
    """The numbers that a model computes in, where nobody converts it.

    >>> numbers_of(nn.Linear(2, 2).bfloat16())
    torch.bfloat16
    """
    floats = (value.dtype for value in module.parameters() if value.is_floating_point())
    return next(floats, torch.float32)


def hash_of(fixed: Mapping[str, Tensor]) -> str:
    """A hash of all names, types, shapes and values; of nothing, an empty text.

    >>> one, other = torch.zeros(2), torch.zeros(2, 1)
    >>> [hash_of({"a": one}) == hash_of({"a": value}) for value in (one.clone(), other)]
    [True, False]
    """
    if not fixed:
        return ""
    found = hashlib.sha256()
    for name in sorted(fixed):
        value = fixed[name].detach().cpu().contiguous()
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
