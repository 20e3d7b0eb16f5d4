"""Layers in a stack of clients, held against PyTorch's own for each client alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from srpfl.engine.batchnorm import with_noted_statistics
from srpfl.engine.dropout import KeyedDropout, key_names, with_keyed_dropout
from srpfl.engine.functions import Functions
from srpfl.engine.layers import with_stackable_layers

CLIENTS = 3
EXACT = 1e-12
KEYS = torch.arange(CLIENTS) + 12345
Params = dict[str, Tensor]


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def ids(*shape: int, below: int = 7) -> Tensor:
    return torch.randint(below, shape)


def prepared(model: nn.Module) -> nn.Module:
    return with_noted_statistics(with_stackable_layers(with_keyed_dropout(model)))


def called(net: nn.Module, params: Params, inputs: tuple[Any, ...], key: Tensor) -> list[Tensor]:
    """All outputs of one client's pass, flat."""
    for module in net.modules():
        if isinstance(module, KeyedDropout):
            module.uses = 0
    with Functions(key):
        given = {**params, **dict.fromkeys(key_names(net), key)}
        return flat(functional_call(net, given, inputs))


def flat(outputs: Any) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    return [one for part in outputs if part is not None for one in flat(part)]


@dataclass(frozen=True)
class Case:
    """How clients' parameters and inputs come: in the first dimension, in the second, or not."""

    params_at: int | None
    inputs_at: int | None

    def stack(self, tensors: list[Tensor], at: int | None) -> Tensor:
        return tensors[0] if at is None else torch.stack(tensors, at if tensors[0].ndim else 0)


CASES = [
    pytest.param(Case(0, 0), id="own"),
    pytest.param(Case(0, 1), id="own-behind"),
    pytest.param(Case(0, None), id="own-common-inputs"),
    pytest.param(Case(None, 0), id="common"),
    pytest.param(Case(None, 1), id="common-behind"),
]


def outputs_and_gradients(
    run: Callable[[Params, tuple[Tensor, ...]], list[Tensor]],
    params: Params,
    inputs: tuple[Tensor, ...],
) -> list[Tensor]:
    """Everything that depends on floating-point inputs and parameters, on leaves of their own."""
    params = {name: value.detach().requires_grad_() for name, value in params.items()}
    inputs = tuple(x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs)
    outputs = run(params, inputs)
    leaves = [x for x in (*params.values(), *inputs) if x.requires_grad]
    # Weights that tell units apart, the same for one client as for a stack of them.
    total = sum((one.cos() * one.detach().sin()).sum() + one.pow(2).sum() for one in outputs)
    grads = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    return [*(one.detach() for one in outputs), *grads]


def clients_of(model: nn.Module, inputs: Callable[[], tuple[Tensor, ...]], case: Case) -> Any:
    """Each client's parameters and inputs; where they are common, the same tensors."""
    own = {name: value.detach() for name, value in model.named_parameters()}
    params = [
        {n: v + 0.1 * torch.randn_like(v) if v.is_floating_point() else v for n, v in own.items()}
        for _ in range(CLIENTS)
    ]
    given = [inputs() for _ in range(CLIENTS)]
    if case.params_at is None:
        params = [params[0]] * CLIENTS
    if case.inputs_at is None:
        given = [given[0]] * CLIENTS
    return params, given


def compare(
    model: nn.Module,
    inputs: Callable[[], tuple[Tensor, ...]],
    case: Case,
    *,
    trace: bool = False,
    alone: nn.Module | None = None,
) -> None:
    """The stack against PyTorch's own layer (or ``alone``), client by client."""
    model = model.double()
    params, given = clients_of(model, inputs, case)
    keys = KEYS
    net = prepared(model)
    stacked_params = {n: case.stack([p[n] for p in params], case.params_at) for n in params[0]}
    stacked_inputs = tuple(
        case.stack([x[i] for x in given], case.inputs_at) for i in range(len(given[0]))
    )

    def run(params: Params, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        def one(params: Params, inputs: tuple[Tensor, ...], key: Tensor) -> list[Tensor]:
            return called(net, params, inputs, key)

        at = [
            None if case.inputs_at is None else case.inputs_at if x.ndim > 1 else 0 for x in inputs
        ]
        in_dims = (case.params_at, tuple(at), 0)
        return list(torch.vmap(one, in_dims=in_dims)(params, inputs, keys))

    def everything(params: Params, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        return outputs_and_gradients(run, params, inputs)

    if trace:
        other = {n: torch.zeros_like(v) for n, v in stacked_params.items()}
        everything_traced = make_fx(everything)(other, stacked_inputs)
        found = everything_traced(stacked_params, stacked_inputs)
    else:
        found = everything(stacked_params, stacked_inputs)

    def by_itself(client: int) -> list[Tensor]:
        def run(params: Params, inputs: tuple[Tensor, ...]) -> list[Tensor]:
            if alone is not None:
                return called(alone, params, inputs, keys[client])
            return flat(functional_call(model, params, inputs))

        return outputs_and_gradients(run, params[client], given[client])

    expected = [by_itself(client) for client in range(CLIENTS)]
    outputs = len(expected[0]) - len(params[0]) - sum(x.is_floating_point() for x in given[0])
    for place, value in enumerate(found):
        each = [one[place] for one in expected]
        if place < outputs:
            torch.testing.assert_close(value, torch.stack(each), rtol=EXACT, atol=EXACT)
            continue
        at = case.params_at if place < outputs + len(params[0]) else case.inputs_at
        total = sum(each) if at is None else torch.stack(each, at if each[0].ndim else 0)
        torch.testing.assert_close(value, total, rtol=1e-11, atol=EXACT)


class Applied(nn.Module):
    """A function as a model, after a convolution or another layer."""

    def __init__(self, function: Callable[..., Any], *before: nn.Module) -> None:
        super().__init__()
        self.before, self.function = nn.Sequential(*before), function

    def forward(self, x: Tensor, *others: Tensor) -> Any:
        return self.function(self.before(x), *others)


def conv_then(layer: nn.Module, channels: int = 4) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, channels, 3), layer)


Made = tuple[nn.Module, Callable[[], tuple[Tensor, ...]]]


def images(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (numbers(*shape),)


def check_low(model: nn.Module, inputs: Callable[[], tuple[Tensor, ...]]) -> None:
    """In bfloat16, outputs and gradients are bfloat16."""
    net = prepared(model.double())
    own = {n: v.detach().bfloat16().expand(CLIENTS, *v.shape) for n, v in net.named_parameters()}
    given = tuple(
        torch.stack([x.bfloat16() if x.is_floating_point() else x] * CLIENTS) for x in inputs()
    )

    def run(params: Params, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        return list(torch.vmap(lambda p, x, k: called(net, p, x, k))(params, inputs, KEYS))

    for value in outputs_and_gradients(run, own, given):
        assert value.dtype == torch.bfloat16
        assert value.isfinite().all()
