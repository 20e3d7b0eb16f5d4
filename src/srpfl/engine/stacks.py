"""A function's own rule for a stack of clients.

``torch.vmap`` knows a rule for each of PyTorch's operations; some are missing and some are slow.
:func:`by_rule` puts one of ours in their place: the rule gets the stacked tensors themselves, and
whatever it does with them is differentiated as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Stack(NamedTuple):
    """How many clients there are, and along which dimension of each argument (None: common)."""

    clients: int
    at: tuple[Any, ...]


# From the stack and the arguments to outputs and the dimensions along which clients lie in them.
Rule = Callable[..., tuple[Any, Any]]


def is_stacked(*values: Any) -> bool:
    """Whether any of these is a tensor with one value for each client."""
    return any(
        isinstance(value, Tensor) and torch._C._functorch.is_batchedtensor(value)
        for value in values
    )


def by_rule(rule: Rule, *args: Any) -> Any:
    """Outputs by the rule. Only for arguments of which one :func:`is_stacked`."""
    return _ByRule.apply(rule, *args)  # type: ignore[no-untyped-call]


class _ByRule(torch.autograd.Function):
    """Only ever seen by vmap, which hands over to the rule: there is nothing to differentiate."""

    @staticmethod
    def forward(rule: Rule, *args: Any) -> Any:
        raise RuntimeError("a rule for stacks was asked for one client")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], rule: Rule, *args: Any) -> tuple[Any, Any]:
        return rule(Stack(info.batch_size, in_dims[1:]), *args)


def clients_first(x: Tensor, at: int | None, clients: int) -> Tensor:
    """The tensor of all clients; one that is common is seen many times."""
    return x.expand(clients, *x.shape) if at is None else x.movedim(at, 0)


def in_batch(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """All clients' samples ([clients, samples, ...]) as one batch, and the way back.

    For what treats each sample by itself, their order is free: that of the memory needs no copy
    (after a convolution, clients lie behind the samples).
    """
    clients_behind = x.stride(0) < x.stride(1)
    if clients_behind:
        x = x.transpose(0, 1)
    sizes = x.shape[:2]

    def unfolded(outputs: Tensor) -> Tensor:
        outputs = outputs.reshape(*sizes, *outputs.shape[1:])
        return outputs.transpose(0, 1) if clients_behind else outputs

    return x.flatten(0, 1), unfolded


def in_channels(x: Tensor, at: int | None, clients: int) -> Tensor:
    """[samples, clients · channels, ...]: each client's channels side by side. The way back is
    :func:`apart` at dimension 1, along which clients lie then."""
    if at is None:
        x, at = x[:, None].expand(-1, clients, *x.shape[1:]), 1
    return x.movedim(at, 1).flatten(1, 2)


def apart(x: Tensor, clients: int, at: int) -> Tensor:
    """A dimension of clients · anything as two."""
    return x.reshape(*x.shape[:at], clients, -1, *x.shape[at + 1 :])


def each_channel(value: Tensor | None, at: int | None, clients: int) -> Tensor | None:
    """One number for each channel of each client, in the order of :func:`in_channels`."""
    return None if value is None else clients_first(value, at, clients).flatten()


def folded(function: Callable[..., Tensor], x: Tensor, *args: Any) -> Tensor:
    """A function without parameters that treats each sample by itself, for one or for a stack."""
    if not is_stacked(x):
        return function(x, *args)

    def rule(stack: Stack, x: Tensor) -> tuple[Tensor, int]:
        batch, unfolded = in_batch(x.movedim(stack.at[0], 0))
        return unfolded(function(batch, *args)), 0

    outputs: Tensor = by_rule(rule, x)
    return outputs
