"""GRU, LSTM and RNN layers for one client or for a stack of clients.

Dropout between layers is keyed (:func:`srpfl.engine.dropout.with_keyed_dropout` gives a layer its
``keyed``): PyTorch's own draws from a global stream.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from srpfl.engine.products import linear
from srpfl.engine.recurrence import recurrence
from srpfl.engine.stacks import is_stacked


class _Recurrent(nn.RNNBase):
    """Layer by layer, direction by direction. Packed sequences are left to PyTorch."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence) or self._is_ordinary(input, hx):
            return super().forward(input, hx)
        alone = input.ndim == 2
        x = input.unsqueeze(1) if alone else input
        if self.batch_first and not alone:
            x = x.transpose(0, 1)
        states = self._first_states(x, hx, alone)
        last: list[tuple[Tensor, ...]] = []
        for layer in range(self.num_layers):
            if layer > 0:
                x = self._dropped(x)
            both = []
            for reverse in range(2 if self.bidirectional else 1):
                given = [state[len(last)] for state in states]
                own = self._own(f"l{layer}_reverse" if reverse else f"l{layer}")
                outputs, *ends = recurrence(self.mode, x.flip(0) if reverse else x, given, own)
                both.append(outputs.flip(0) if reverse else outputs)
                last.append(tuple(ends))
            x = torch.cat(both, -1) if self.bidirectional else both[0]
        ends = [torch.stack(state) for state in zip(*last, strict=True)]
        if alone:
            x, ends = x[:, 0], [end[:, 0] for end in ends]
        elif self.batch_first:
            x = x.transpose(0, 1)
        return x, tuple(ends) if self.mode == "LSTM" else ends[0]

    def _is_ordinary(self, input: Tensor, hx: Any) -> bool:
        """Whether PyTorch's own pass does the same, quicker. (cuDNN's has no gradients but in
        training.)"""
        states = hx if isinstance(hx, tuple) else (hx,)
        if is_stacked(input, *states, *self.parameters()):
            return False
        if not self.training:
            return not torch.is_grad_enabled()
        return self.dropout == 0 or self.num_layers == 1

    def _first_states(self, x: Tensor, hx: Any, alone: bool) -> tuple[Tensor, ...]:
        if hx is None:
            layers = self.num_layers * (2 if self.bidirectional else 1)
            zeros = x.new_zeros(layers, x.shape[1], self.hidden_size)
            return (zeros, zeros) if self.mode == "LSTM" else (zeros,)
        states = hx if self.mode == "LSTM" else (hx,)
        return tuple(state[:, None] for state in states) if alone else tuple(states)

    def _own(self, suffix: str) -> list[Tensor]:
        kinds = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if self.bias else ()))
        return [getattr(self, f"{kind}_{suffix}") for kind in kinds]

    def _dropped(self, x: Tensor) -> Tensor:
        if self.dropout == 0 or not self.training:
            return x
        keyed = getattr(self, "keyed", None)
        if keyed is None:
            return F.dropout(x, self.dropout)
        # A mask goes by a unit's place, and padding behind the samples must not shift it.
        dropped: Tensor = keyed(x.transpose(0, 1)).transpose(0, 1)
        return dropped


class StackableGRU(_Recurrent, nn.GRU):
    pass


class StackableLSTM(_Recurrent, nn.LSTM):
    pass


class StackableRNN(_Recurrent, nn.RNN):
    pass


RECURRENT: dict[type[nn.Module], type[_Recurrent]] = {
    nn.GRU: StackableGRU,
    nn.LSTM: StackableLSTM,
    nn.RNN: StackableRNN,
}


def made_recurrent(module: nn.RNNBase) -> bool:
    """Make PyTorch's own layer one of ours; whether it is one now. (States of another size,
    ``proj_size``, are left alone.)"""
    if type(module) in RECURRENT and module.proj_size == 0:
        module.__class__ = RECURRENT[type(module)]
    return isinstance(module, _Recurrent)


class _Cell(nn.RNNCellBase):
    """One step, by the equations in PyTorch's documentation."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        given = hx if isinstance(hx, tuple) else (hx,)
        if not is_stacked(input, *given, *self.parameters()):
            return super().forward(input, hx)
        alone = input.ndim == 1
        x = input[None] if alone else input
        if hx is None:
            zeros = x.new_zeros(len(x), self.hidden_size)
            given = (zeros, zeros) if isinstance(self, nn.LSTMCell) else (zeros,)
        elif alone:
            given = tuple(state[None] for state in given)
        gates = linear(x, self.weight_ih, self.bias_ih)
        inner = linear(given[0], self.weight_hh, self.bias_hh)
        states = self._step(gates, inner, *given)
        states = tuple(state[0] for state in states) if alone else states
        return states if len(states) > 1 else states[0]

    def _step(self, gates: Tensor, inner: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError


class StackableRNNCell(_Cell, nn.RNNCell):
    def _step(self, gates: Tensor, inner: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        gate = gates + inner
        return (torch.relu(gate) if self.nonlinearity == "relu" else torch.tanh(gate),)


class StackableGRUCell(_Cell, nn.GRUCell):
    def _step(self, gates: Tensor, inner: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        (r, z, n), (inner_r, inner_z, inner_n) = gates.chunk(3, -1), inner.chunk(3, -1)
        reset, keep = torch.sigmoid(r + inner_r), torch.sigmoid(z + inner_z)
        return (torch.lerp(torch.tanh(n + reset * inner_n), given[0], keep),)


class StackableLSTMCell(_Cell, nn.LSTMCell):
    def _step(self, gates: Tensor, inner: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        enter, forget, new, leave = (gates + inner).chunk(4, -1)
        cell = torch.sigmoid(forget) * given[1] + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


CELLS: dict[type[nn.Module], type[nn.Module]] = {
    nn.RNNCell: StackableRNNCell,
    nn.GRUCell: StackableGRUCell,
    nn.LSTMCell: StackableLSTMCell,
}
