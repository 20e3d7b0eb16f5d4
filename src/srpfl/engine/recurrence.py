"""One recurrent layer in one direction, for one client or for a stack of clients.

A stack takes one batched product for the inputs of all time steps, then in each step one product
and a few operations. On the way back, what a step's gates answer for is linear in what its state
does: the factors are found for all steps at once, and the gradient of the weights is one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import _VF, Tensor
from torch.autograd.function import once_differentiable

from srpfl.engine.products import stacked_linear
from srpfl.engine.stacks import Stack, by_rule, clients_first, is_stacked

PLAIN: dict[str, Any] = {
    "GRU": _VF.gru,
    "LSTM": _VF.lstm,
    "RNN_TANH": _VF.rnn_tanh,
    "RNN_RELU": _VF.rnn_relu,
}


def recurrence(
    kind: str, x: Tensor, states: Sequence[Tensor], own: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """States of all time steps ([time, batch, ...]) and the last states, of which LSTM has two.
    ``own``: weights of inputs and of states, and their biases if there are any."""
    if is_stacked(x, *states, *own):
        found: tuple[Tensor, ...] = by_rule(_rule, kind, len(states), x, *states, *own)
        return found
    first = [state[None] for state in states]
    given = first if kind == "LSTM" else first[0]
    # As if in training: cuDNN has no gradients otherwise.
    outputs, *last = PLAIN[kind](x, given, own, len(own) == 4, 1, 0.0, True, False, False)
    return outputs, *[state[0] for state in last]


def _rule(
    stack: Stack, kind: str, count: int, *tensors: Tensor
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    clients, at = stack.clients, stack.at[2:]
    if any(place is not None for place in at[1 + count :]):
        each = map(clients_first, tensors, at, [clients] * len(tensors))
        found = _stacked(kind, count, *each)
        return found, (0,) * len(found)
    # Weights common to all: one client with everyone's samples.
    samples = map(clients_first, tensors[: 1 + count], at, [clients] * (1 + count))
    joined = (tensor.movedim(0, -3).flatten(-3, -2)[None] for tensor in samples)
    common = (weight[None] for weight in tensors[1 + count :])
    found = _stacked(kind, count, *joined, *common)
    parted = (one[0].reshape(*one.shape[1:-2], clients, -1, one.shape[-1]) for one in found)
    return tuple(parted), (1, *[0] * count)


def _stacked(kind: str, count: int, x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    """[clients, time, batch, ...]"""
    (h, *cell), (by_input, by_state, *biases) = rest[:count], rest[count:]
    bias, inner = biases or (None, None)
    # In a GRU, that of the state goes through a gate.
    if kind != "GRU" and bias is not None and inner is not None:
        bias, inner = bias + inner, None
    flat = stacked_linear(x.flatten(1, 2), by_input, bias)
    gates = flat.reshape(*x.shape[:3], -1)
    if kind == "LSTM":
        outputs, last = _LSTM.apply(gates, h, *cell, by_state)  # type: ignore[no-untyped-call]
        return outputs, outputs[:, -1], last
    if kind == "GRU":
        outputs = _GRU.apply(gates, h, by_state, inner)  # type: ignore[no-untyped-call]
    else:
        outputs = _Simple.apply(gates, h, by_state, kind == "RNN_RELU")  # type: ignore[no-untyped-call]
    return outputs, outputs[:, -1]


class _Simple(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, h: Tensor, weight: Tensor, relu: bool) -> Tensor:
        states = [h]
        for given in gates.unbind(1):
            gate = torch.baddbmm(given, states[-1], weight.mT)
            states.append(torch.relu(gate) if relu else torch.tanh(gate))
        outputs = torch.stack(states[1:], 1)
        ctx.save_for_backward(h, outputs, weight)
        ctx.relu = relu
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        h, outputs, weight = ctx.saved_tensors
        factors = (outputs > 0).to(h.dtype) if ctx.relu else 1 - outputs**2
        towards, found = _first(grads[0]), []
        for left, factor in _backwards(grads[0], factors):
            found.append(towards * factor)
            towards = _add_product(left, found[-1], weight)
        gates = torch.stack(found[::-1], 1)
        return gates, towards, _by_weight(gates, h, outputs), None


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        width, steps, states = h.shape[-1], [], [h]
        for given in gates.unbind(1):
            h = states[-1]
            inner = (
                torch.bmm(h, weight.mT)
                if bias is None
                else torch.baddbmm(bias[:, None], h, weight.mT)
            )
            both = torch.sigmoid(given[..., : 2 * width] + inner[..., : 2 * width])
            reset, keep = both.chunk(2, -1)
            new = torch.tanh(torch.addcmul(given[..., 2 * width :], reset, inner[..., 2 * width :]))
            states.append(torch.lerp(new, h, keep))
            steps.append((both, new, inner[..., 2 * width :]))
        outputs = torch.stack(states[1:], 1)
        ctx.save_for_backward(states[0], outputs, weight, *[one for step in steps for one in step])
        ctx.has_bias = bias is not None
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        h, outputs, weight, *steps = ctx.saved_tensors
        both, new, inner = (torch.stack(steps[place::3], 1) for place in range(3))
        reset, keep = both.chunk(2, -1)
        by_new = (1 - keep) * (1 - new**2)
        by_reset = by_new * inner * reset * (1 - reset)
        by_keep = (_before(h, outputs) - new) * keep * (1 - keep)
        factors = torch.stack([by_reset, by_keep, by_new * reset], -2)
        towards, found, reached = _first(grads[0]), [], []
        for left, factor, kept in _backwards(grads[0], factors, keep):
            reached.append(towards)
            found.append((towards[..., None, :] * factor).flatten(-2))
            direct = towards * kept if left is None else torch.addcmul(left, towards, kept)
            towards = torch.baddbmm(direct, found[-1], weight)
        hidden = torch.stack(found[::-1], 1)
        given = torch.stack(reached[::-1], 1) * by_new
        gates = torch.cat([hidden[..., : -h.shape[-1]], given], -1)
        by_bias = hidden.sum((1, 2)) if ctx.has_bias else None
        return gates, towards, _by_weight(hidden, h, outputs), by_bias


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, h: Tensor, c: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, states, cells = [], [h], [c]
        for given in gates.unbind(1):
            all_gates = torch.baddbmm(given, states[-1], weight.mT)
            opened = torch.sigmoid(all_gates)
            enter, forget, _, leave = opened.chunk(4, -1)
            new = torch.tanh(all_gates.chunk(4, -1)[2])
            cells.append(torch.addcmul(forget * cells[-1], enter, new))
            shown = torch.tanh(cells[-1])
            states.append(leave * shown)
            steps.append((opened, new, shown, cells[-1]))
        outputs = torch.stack(states[1:], 1)
        ctx.save_for_backward(h, c, outputs, weight, *[one for step in steps for one in step])
        return outputs, cells[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        h, c, outputs, weight, *steps = ctx.saved_tensors
        opened, new, shown, cells = (torch.stack(steps[place::4], 1) for place in range(4))
        enter, forget, _, leave = opened.chunk(4, -1)
        by_cell = leave * (1 - shown**2)
        by_leave = shown * leave * (1 - leave)
        by_forget = _before(c, cells) * forget * (1 - forget)
        by_enter = new * enter * (1 - enter)
        factors = torch.stack([by_enter, by_forget, enter * (1 - new**2)], -2)
        (towards, cell), found = (_first(grads[0]), grads[1]), []
        walk = _backwards(grads[0], factors, by_cell, by_leave, forget)
        for left, factor, to_cell, to_leave, kept in walk:
            cell = torch.addcmul(cell, towards, to_cell)
            three = (cell[..., None, :] * factor).flatten(-2)
            found.append(torch.cat([three, towards * to_leave], -1))
            towards = _add_product(left, found[-1], weight)
            cell = cell * kept
        gates = torch.stack(found[::-1], 1)
        return gates, towards, cell, _by_weight(gates, h, outputs)


def _before(first: Tensor, states: Tensor) -> Tensor:
    """The states that each step began with."""
    return torch.cat([first[:, None], states[:, :-1]], 1)


def _first(grad: Tensor) -> Tensor:
    """What the last state answers for: nothing comes after it."""
    return grad[:, -1]


def _backwards(grad: Tensor, *factors: Tensor) -> Any:
    """Steps from the last to the first: the gradient by the state before the step's, if that is
    an output, and the step's factors."""
    earlier = [None, *grad.unbind(1)[:-1]]
    steps = zip(earlier, *[factor.unbind(1) for factor in factors], strict=True)
    return reversed(list(steps))


def _add_product(left: Tensor | None, gates: Tensor, weight: Tensor) -> Tensor:
    return torch.bmm(gates, weight) if left is None else torch.baddbmm(left, gates, weight)


def _by_weight(gates: Tensor, first: Tensor, states: Tensor) -> Tensor:
    return torch.bmm(gates.flatten(1, 2).mT, _before(first, states).flatten(1, 2))
