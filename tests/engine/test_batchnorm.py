"""BatchNorm sees each client's real samples, and notes its statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

import srpfl
import tiny
from srpfl.engine.batchnorm import (
    PRESENT,
    noted,
    present_names,
    statistics_names,
    with_noted_statistics,
)
from srpfl.engine.threads import one_thread
from srpfl.engine.vectorised import VectorisedEngine
from srpfl.errors import ConfigError

from .alone import (
    CASES,
    CLIENTS,
    EXACT,
    Case,
    Params,
    compare,
    images,
    numbers,
    prepared,
)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Small tensors: more threads only get in each other's way."""
    torch.manual_seed(0)
    with one_thread():
        yield


def batch_norm(kind: type[nn.Module] = nn.BatchNorm2d, **how: Any) -> Any:
    """One that has seen something already."""
    layer = kind(4, **how).double()
    for value in layer.buffers():
        value.copy_(torch.rand_like(value.double()) + 0.5 if value.ndim else torch.tensor(2))
    for value in layer.parameters():
        nn.init.uniform_(value, 0.5, 1.5)
    return layer


SHAPES = {nn.BatchNorm1d: (6, 4), nn.BatchNorm2d: (6, 4, 3, 3), nn.BatchNorm3d: (6, 4, 2, 2, 2)}
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {},
    "cumulative": {"momentum": None},
    "heavy": {"momentum": 0.7, "eps": 0.1},
    "plain": {"affine": False},
    "untracked": {"track_running_stats": False},
    "bare": {"affine": False, "track_running_stats": False},
}
PADDED = {
    "all": [6, 6, 6],
    "some": [6, 2, 4],
    "one": [3, 1, 6],
    "nobody": [0, 1, 2],
}


def normalised(net: nn.Module, state: Params, x: Tensor) -> tuple[list[Tensor], Params]:
    """One pass: outputs and new statistics, as an engine does it."""
    return [functional_call(net, state, (x,))], noted(net)


def as_torch_does(layer: Any, state: Params, x: Tensor) -> tuple[list[Tensor], Params]:
    """PyTorch's own layer, alone with its real samples."""
    state = dict(state)
    was = {name: value.detach().clone() for name, value in layer.named_buffers()}
    given = {n: v.clone() if n in was else v for n, v in state.items()}
    few = len(x) <= 1 and layer.training and layer.track_running_stats
    layer.train(layer.training and not few)
    outputs = functional_call(layer, given, (x,)) if len(x) else x * 1
    layer.train()
    return [outputs], {name: given[name] for name in was}


@pytest.mark.parametrize("how", ["first", "behind", "traced"])
@pytest.mark.parametrize("padded", ["full", *PADDED])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", SHAPES)
def test_batch_norm_sees_the_real_samples_of_each_client(
    kind: Any, options: str, padded: str, how: str
) -> None:
    """Outputs, gradients and running statistics are those of PyTorch's own layer."""
    at = 1 if how == "behind" else 0
    layer = batch_norm(kind, **OPTIONS[options])
    net = with_noted_statistics(layer)
    sizes = PADDED.get(padded, [6] * CLIENTS)
    if options in ("untracked", "bare") and kind is nn.BatchNorm1d:
        sizes = [max(size, 2) if size else 0 for size in sizes]  # one number has no variance
    x = numbers(CLIENTS, *SHAPES[kind])
    present = torch.arange(6) < torch.tensor(sizes)[:, None]
    for client, size in enumerate(sizes):
        x[client, size:] = 1e3  # padding must not count
    weights = numbers(*x.shape)
    states = [
        {
            n: v + torch.rand_like(v) if v.is_floating_point() else v + client
            for n, v in layer.state_dict().items()
        }
        for client in range(CLIENTS)
    ]
    params = [name for name, _ in layer.named_parameters()]
    stack = {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def everything(stack: Params, x: Tensor, present: Tensor) -> dict[str, Tensor]:
        leaves = {name: stack[name].detach().requires_grad_() for name in params}
        x = x.detach().requires_grad_()

        def one(state: Params, x: Tensor, present: Tensor) -> tuple[Tensor, Params]:
            if padded != "full":
                state = {**state, **dict.fromkeys(present_names(net), present)}
            (outputs,), statistics = normalised(net, state, x)
            return outputs, statistics

        given = x.movedim(0, at)
        outputs, statistics = torch.vmap(one, in_dims=(0, at, 0))(
            {**stack, **leaves}, given, present
        )
        total = (outputs * weights * present.reshape(3, 6, *[1] * (x.ndim - 2))).sum()
        grads = torch.autograd.grad(total, [x, *leaves.values()])
        return {
            "outputs": outputs.detach(),
            **statistics,
            **dict(zip(["x", *params], grads, strict=True)),
        }

    if how == "traced":
        found = make_fx(everything)(stack, torch.ones_like(x), present)(stack, x, present)
    else:
        found = everything(stack, x, present)
    for value in found.values():
        assert value.isfinite().all()
    assert {name for name in found if name in statistics_names(net)} == set(statistics_names(net))
    for client, size in enumerate(sizes):
        leaves = {n: states[client][n].detach().requires_grad_() for n in params}
        own = x[client, :size].detach().requires_grad_()
        (outputs,), statistics = as_torch_does(layer, {**states[client], **leaves}, own)
        total = (outputs * weights[client, :size]).sum()
        grads = torch.autograd.grad(
            total, [own, *leaves.values()], allow_unused=True, materialize_grads=True
        )
        expected = {**statistics, **dict(zip(params, grads[1:], strict=True))}
        for name, value in expected.items():
            if size or name not in params:
                torch.testing.assert_close(found[name][client], value, rtol=EXACT, atol=EXACT)
        for name, value in (("outputs", outputs.detach()), ("x", grads[0])):
            if size:
                torch.testing.assert_close(
                    found[name][client, :size], value, rtol=1e-10, atol=1e-11
                )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("samples", [1, 6])
def test_batch_norm_of_one_client_does_as_pytorch_does(options: str, samples: int) -> None:
    """No stack, as in the loop; and nothing is written into what was given."""
    layer = batch_norm(**OPTIONS[options])
    net, x = with_noted_statistics(layer), numbers(samples, 4, 3, 3)
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    (found,), statistics = normalised(net, state, x)
    (expected,), after = as_torch_does(layer, layer.state_dict(), x)
    torch.testing.assert_close(found, expected, rtol=EXACT, atol=EXACT)
    for name, value in layer.state_dict().items():
        assert value.equal(state[name])
    for name, value in statistics.items():
        torch.testing.assert_close(value, after[name], rtol=EXACT, atol=EXACT)
    assert set(statistics) == set(statistics_names(net))
    assert noted(net) == {}


@pytest.mark.parametrize("case", CASES)
def test_batch_norm_outside_of_training_uses_what_it_has_seen(case: Case) -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), batch_norm()).eval()
    compare(model, images(5, 2, 5, 5), case)


def test_batch_norm_used_twice_goes_on_from_its_first_use() -> None:
    layer = batch_norm(nn.BatchNorm1d, momentum=None)
    model = nn.Sequential(layer, nn.Tanh(), layer).train()
    net, x = with_noted_statistics(model), numbers(CLIENTS, 6, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = {name: value for name, value in before.items() if name.startswith("0.")}
    _, found = torch.vmap(lambda x: normalised(net, first, x))(x)
    for client in range(CLIENTS):
        model.load_state_dict(before)
        model(x[client])
        for name, value in found.items():
            torch.testing.assert_close(value[client], model.state_dict()[name])


def test_batch_norm_leaves_names_as_they_are() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.InstanceNorm2d(4))
    net = prepared(model)
    assert list(net.state_dict()) == list(model.state_dict())
    assert [n for n, _ in net.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert present_names(net) == [f"1.{PRESENT}"]
    assert statistics_names(net) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]


@pytest.mark.parametrize("masked", [False, True])
def test_batch_norm_in_low_precision_keeps_its_statistics_in_float32(masked: bool) -> None:
    net = with_noted_statistics(nn.BatchNorm2d(4))
    x = (torch.randn(CLIENTS, 6, 4, 3, 3) * 2 + 5).bfloat16().requires_grad_()
    state = dict(net.state_dict())
    low = {name: value.bfloat16() for name, value in net.named_parameters()}
    present = torch.ones(6, dtype=torch.bool)

    def one(x: Tensor) -> tuple[Tensor, Params]:
        given = {PRESENT: present} if masked else {}
        (outputs,), statistics = normalised(net, {**state, **low, **given}, x)
        return outputs, statistics

    outputs, statistics = torch.vmap(one)(x)
    assert outputs.dtype == torch.bfloat16
    (grad,) = torch.autograd.grad(outputs.square().sum(), [x])
    assert grad.dtype == torch.bfloat16
    assert statistics["running_mean"].dtype == torch.float32
    wide = x.detach().float()
    torch.testing.assert_close(statistics["running_mean"], 0.1 * wide.mean((1, 3, 4)))
    torch.testing.assert_close(statistics["running_var"], 0.9 + 0.1 * wide.var((1, 3, 4)))


def test_without_running_statistics_it_is_not_stacked() -> None:
    net = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, 3)
    )
    with pytest.raises(ConfigError, match=r"cannot train '1' \(BatchNorm1d\) .* depends on its"):
        VectorisedEngine(net, tiny.data())
    with pytest.warns(srpfl.SrpflWarning, match="one after another"):
        tiny.simulate(model=net, engine="auto", rounds=1)
