"""How exactly to compute: a name for each choice, and what it switches on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from srpfl.engine.dropout import KeyedDropout
from srpfl.errors import unknown
from srpfl.split import Params

Forward = Callable[[Params, Tensor], Tensor]  # parameters and inputs to outputs


@dataclass(frozen=True)
class Precision:
    """The numbers that parameters are kept in, and those that a forward pass is computed in."""

    kept: torch.dtype = torch.float32
    computed: torch.dtype = torch.float32
    tf32: bool = False

    @classmethod
    def of(cls, name: str) -> Precision:
        """
        >>> Precision.of("bfloat16").kept
        torch.float32
        """
        if name not in PRECISIONS:
            raise unknown("precision", name, PRECISIONS)
        return PRECISIONS[name]

    def lowered(self, forward: Forward) -> Forward:
        """The forward pass in the numbers to compute in; outputs, and so losses, in the kept."""
        if self.computed == self.kept:
            return forward

        def low(params: Params, x: Tensor) -> Tensor:
            casted = {name: self._low(value) for name, value in params.items()}
            return forward(casted, self._low(x)).to(self.kept)

        return low

    def cast(self, value: Tensor, device: torch.device) -> Tensor:
        return value.to(device, self.kept if value.is_floating_point() else value.dtype)

    def _low(self, value: Tensor) -> Tensor:
        return value.to(self.computed) if value.is_floating_point() else value

    @contextmanager
    def switched(self) -> Iterator[None]:
        """TF32 as asked. PyTorch's switches are global, and on by default for convolutions."""
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, cudnn.allow_tf32
        matmul.allow_tf32, cudnn.allow_tf32 = self.tf32, self.tf32
        try:
            yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = before


PRECISIONS = {
    "float32": Precision(),
    "float64": Precision(torch.float64, torch.float64),
    "tf32": Precision(tf32=True),
    "bfloat16": Precision(computed=torch.bfloat16, tf32=True),
}


def called(model: nn.Module) -> Forward:
    """The model as a function of its parameters."""
    layers = [module for module in model.modules() if isinstance(module, KeyedDropout)]

    def forward(params: Params, x: Tensor) -> Tensor:
        for layer in layers:
            layer.uses = 0
        with ViewsMayCopy():
            outputs: Tensor = functional_call(model, params, (x,))
        return outputs

    return forward


class ViewsMayCopy(TorchFunctionMode):
    """Lets ``x.view(len(x), -1)`` take images with their channels last, which it cannot do without
    a copy. Models are written for images with channels first."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.view and not kwargs and not isinstance(args[1], torch.dtype):
            func = Tensor.reshape
        return func(*args, **(kwargs or {}))
