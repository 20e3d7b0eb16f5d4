"""Whether a model can be trained on the data at all, found out before the first round."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from srpfl.core.trees import Tree, arguments, form, gathered, leaves, take
from srpfl.data.base import Federated, Samples
from srpfl.engine.batchnorm import with_noted_statistics
from srpfl.engine.dropout import with_keyed_dropout
from srpfl.engine.functions import Functions
from srpfl.engine.precision import STEP, called
from srpfl.engine.store import tensors
from srpfl.engine.threads import one_thread
from srpfl.errors import ConfigError
from srpfl.task import Task


class Probe(NamedTuple):
    """One real sample twice, for layers with statistics over a batch."""

    x: Tree
    y: Tensor


def check_fit(model: nn.Module, data: Federated, task: Task) -> None:
    """Refuse a model that cannot take the samples, or whose outputs the task cannot judge."""
    for name, value in model.named_parameters():
        if is_lazy(value) or value.is_meta:
            raise ConfigError(
                f"'{name}' has no values yet: give the model its sizes, on a real device"
            )
        if value.is_complex():
            raise ConfigError(
                f"'{name}' holds complex numbers, which cannot be trained here: keep its real and "
                "imaginary parts as two parameters"
            )
    two = probe(data)
    try:
        with one_thread(), torch.random.fork_rng(devices=[]), torch.no_grad():
            outputs, _ = called(ready(model))({}, two.x)
    except Exception as error:  # whatever the model's own code raises
        raise ConfigError(
            f"the model does not take samples of {_described(two.x)}: {reason(error)}{_hint(two.x)}"
        ) from error
    try:
        task.check_outputs(outputs, two.y, data.classes)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{type(task).__name__} cannot take the model's outputs for labels of shape "
            f"{tuple(two.y.shape[1:])}: {reason(error)}"
        ) from error


def reason(error: Exception) -> str:
    """The first line of what went wrong."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _described(x: Tree) -> str:
    shapes = leaves(form(x)) if not isinstance(x, Tensor) else [form(x)]
    pairs = [shapes[i] for i in range(len(shapes))]
    if isinstance(x, Tensor):
        shape, kind = pairs[0]
        return f"shape {shape} ({kind.removeprefix('torch.')})"
    return f"the form {form(x)}"


def _hint(x: Tree) -> str:
    kinds = {tensor.dtype for tensor in leaves(x)}
    if torch.uint8 in kinds or torch.int64 not in kinds:
        whole = any(not kind.is_floating_point for kind in kinds)
        return " (images of bytes need transform=srpfl.data.Transform())" if whole else ""
    return " (whole numbers stay whole, for embeddings: give floats where numbers are meant)"


def draws_itself(model: nn.Module, data: Federated) -> bool:
    """Whether training the model uses PyTorch's global stream of random numbers: noise, random
    depth, whatever is not one of PyTorch's dropouts."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        with one_thread():
            called(ready(model))({STEP: torch.zeros((), dtype=torch.int64)}, probe(data).x)
        return not torch.equal(before, torch.get_rng_state())


def drops_by_function(model: nn.Module, data: Federated) -> bool:
    """Whether the model calls a dropout function in training, where there is no layer to see."""
    net, x = ready(model), probe(data).x
    args, named = arguments(x)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), one_thread():
        with Functions(torch.zeros((), dtype=torch.int64)) as functions:
            net(*args, **named)
        return bool(functions.uses)


def ready(model: nn.Module) -> nn.Module:
    """A copy to try things out with."""
    return with_noted_statistics(with_keyed_dropout(model)).cpu().float().train()


def probe(data: Federated) -> Probe:
    x, y = data.train(0)
    one, label = tensors(Samples(take(x, slice(0, 1)), y[:1]), torch.device("cpu"))
    return Probe(data.transform.prepare(gathered(torch.cat, [one, one])), torch.cat([label, label]))
