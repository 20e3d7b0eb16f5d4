"""Whether a model can be trained on the data at all, found out before the first round."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from srpfl.core.split import Params, nothing, split, trainable
from srpfl.core.streams import standing, streams
from srpfl.core.trees import Tree, arguments, form, gathered, leaves, take
from srpfl.data.base import Federated, Samples
from srpfl.engine.batchnorm import with_noted_statistics
from srpfl.engine.dropout import with_keyed_dropout
from srpfl.engine.functions import Functions
from srpfl.engine.precision import STEP, called
from srpfl.engine.store import tensors
from srpfl.engine.threads import one_thread
from srpfl.errors import ConfigError
from srpfl.task import Task, summed

CHECKPOINTED = (
    "the model computes parts of itself again in the backward pass, with other weights than it was "
    "called with (torch.utils.checkpoint, or gradient_checkpointing_enable): switch that off, and "
    "use srpfl.models.recomputed(model) to save memory"
)


class Probe(NamedTuple):
    """One real sample twice, for layers with statistics over a batch."""

    x: Tree
    y: Tensor


def check_fit(model: nn.Module, data: Federated, task: Task) -> None:
    """Refuse a model that cannot take the samples, or whose outputs the task cannot judge."""
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ConfigError(
            "TorchScript runs with its own weights only, so it cannot be trained here: give the "
            "model that the script was made from"
        )
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
    outputs = _outputs(model, two.x, "samples")
    judged = _outputs(model, two.x, "samples", training=False)
    tested = data.test(0)
    if len(tested.y) and form((other := _twice(tested, data)).x) != form(two.x):
        _ = _outputs(model, other.x, "test samples")
    try:
        task.check_outputs(outputs, two.y, data.classes)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{type(task).__name__} cannot take the model's outputs for labels of shape "
            f"{tuple(two.y.shape[1:])}: {reason(error)}"
        ) from error
    try:
        sums, weights = summed(task.score(judged, two.y))
        fits = sums.ndim == 2 and len(sums) == len(weights) == len(two.y)
    except Exception as error:  # whatever the task's own code raises
        raise ConfigError(
            f"the score of {type(task).__name__} cannot judge the model's outputs: {reason(error)}"
        ) from error
    if not fits:
        raise ConfigError(
            f"the score of {type(task).__name__} must be one number per sample, or a row of them, "
            f"and is of shape {tuple(sums.shape)} for {len(two.y)} samples"
        )


def _outputs(model: nn.Module, x: Tree, what: str, *, training: bool = True) -> Any:
    """What the model says to some samples, or a sentence."""
    try:
        with one_thread(), streams(), torch.no_grad():
            return called(ready(model).train(training))({}, x)[0]
    except Exception as error:  # whatever the model's own code raises
        raise ConfigError(
            f"the model does not take {what} of {_described(x)}: {reason(error)}{_hint(x)}"
        ) from error


def check_extremes(model: nn.Module, some: Samples | None, data: Federated, task: Task) -> None:
    """Refuse whole numbers that the model or the task has no place for: on a GPU they would end the
    process. ``some`` are the samples that have the smallest and the largest ones."""
    if some is None:
        return
    x, y = tensors(some, torch.device("cpu"))
    x = data.transform.prepare(gathered(torch.cat, [x, x]))
    try:
        with one_thread(), streams(), torch.no_grad():
            outputs, _ = called(ready(model))({}, x)
            task.loss(outputs, torch.cat([y, y]))
    except Exception as error:  # whatever the model's own code raises
        whole = [t for t in leaves((x, y)) if not t.is_floating_point()]
        low, high = min(int(t.min()) for t in whole), max(int(t.max()) for t in whole)
        raise ConfigError(
            f"the model does not take all whole numbers of the samples ({low} to {high}): "
            f"{reason(error)}"
        ) from error


def check_gradient(model: nn.Module, data: Federated) -> None:
    """Refuse a model that cannot be differentiated, or whose gradient is not that of the weights
    it is called with: what PyTorch's checkpoints compute again sees the model's own."""
    x, plain, other = probe(data).x, ready(model), ready(model)
    given = split(plain, nothing).shared
    names = sorted(trainable(plain))
    for name in names:
        other.get_parameter(name).data.add_(1.0)
    try:
        with one_thread(), streams():
            _total(plain, {}, x).backward()  # type: ignore[no-untyped-call]
            wanted = [plain.get_parameter(name).grad for name in names]
            leaf = [given[name].requires_grad_() for name in names]
            found = torch.autograd.grad(_total(other, given, x), leaf, allow_unused=True)
    except Exception as error:  # whatever PyTorch cannot do with the model
        if "torch.utils.checkpoint" in str(error):
            raise ConfigError(CHECKPOINTED) from error
        raise ConfigError(f"the model's gradient cannot be computed: {reason(error)}") from error
    # Other weights differ by far more; a gradient of zero is rounding, as large as others' errors.
    sizes = [
        float(grad.to_dense().nan_to_num(0, 0, 0).norm()) for grad in wanted if grad is not None
    ]
    slack = 1e-6 * max(sizes, default=0.0)
    for mine, yours in zip(found, wanted, strict=True):
        one, two = (torch.zeros(()) if grad is None else grad.to_dense() for grad in (mine, yours))
        if not torch.allclose(one, two, rtol=1e-3, atol=slack, equal_nan=True):
            raise ConfigError(CHECKPOINTED)


def _total(net: nn.Module, given: Params, x: Tree) -> Tensor:
    """A number that depends on all outputs."""
    with streams(0):
        outputs, _ = called(net)({**given, STEP: torch.zeros((), dtype=torch.int64)}, x)
    start = torch.zeros((), requires_grad=True)
    return sum((t.square().sum() for t in leaves(outputs) if t.is_floating_point()), start)


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


def draws_itself(model: nn.Module, data: Federated) -> str | None:
    """What of the model uses a global stream of random numbers in training: noise, random depth,
    whatever is not one of PyTorch's dropouts; None if nothing does."""
    net, x, found = ready(model), probe(data).x, list[str]()

    def draws() -> bool:
        with streams(), torch.no_grad(), one_thread():
            before = standing()
            called(net)({STEP: torch.zeros((), dtype=torch.int64)}, x)
            return standing() != before

    def watch(name: str, module: nn.Module) -> None:
        before: list[Any] = []
        module.register_forward_pre_hook(lambda *_: before.append(standing()))

        def after(*_: object) -> None:
            if standing() != before.pop():
                found.append(layer_in_words(name, module))

        module.register_forward_hook(after)

    if not draws():
        return None
    for name, module in net.named_modules():
        if name and not list(module.children()):
            watch(name, module)
    draws()
    return found[0] if found else "a model"


def layer_in_words(name: str, module: nn.Module) -> str:
    """A layer by its name and PyTorch's kind of layer."""
    kinds = [kind for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn")]
    return f"'{name}' ({(kinds or [type(module)])[0].__name__})"


def drops_by_function(model: nn.Module, data: Federated) -> bool:
    """Whether the model calls a dropout function in training, where there is no layer to see."""
    net, x = ready(model), probe(data).x
    args, named = arguments(x)
    with streams(), torch.no_grad(), one_thread():
        with Functions(torch.zeros((), dtype=torch.int64)) as functions:
            net(*args, **named)
        return bool(functions.uses)


def ready(model: nn.Module) -> nn.Module:
    """A copy to try things out with."""
    return with_noted_statistics(with_keyed_dropout(model)).cpu().float().train()


def probe(data: Federated) -> Probe:
    return _twice(data.train(0), data)


def _twice(samples: Samples, data: Federated) -> Probe:
    """The first of some samples, as models take them."""
    x, y = samples
    one, label = tensors(Samples(take(x, slice(0, 1)), y[:1]), torch.device("cpu"))
    return Probe(data.transform.prepare(gathered(torch.cat, [one, one])), torch.cat([label, label]))
