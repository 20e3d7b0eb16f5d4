"""BatchNorm whose running statistics are noted instead of written, for one client or for a stack.

A stack of clients is a function of its inputs, so nothing may be written in place: the new
statistics of a pass are noted, and the caller of the model takes them. Clients with less data than
others have batches that are filled up: BatchNorm must know which samples of a batch are real.

How to use it::

    net = with_noted_statistics(model)          # names of parameters and buffers stay
    outputs = functional_call(net, {**state, **dict.fromkeys(present_names(net), present)}, x)
    state.update(noted(net))                    # under vmap: return them beside the outputs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from srpfl.core.backbone import copied
from srpfl.core.split import Params
from srpfl.engine.normalisation import with_batch, with_given, with_present

PRESENT = "samples_present"
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class _NotedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """As PyTorch's, but that one real sample alone, which has no statistics, is normalised with
    the running ones and changes nothing (they are noted as they were).

    ``samples_present`` is given through a functional call: (batch,), True for the real samples;
    None says that all are. Statistics are computed in float32 or better.
    """

    samples_present: Tensor | None
    noted: Params  # of this pass

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        own, mean, var = (self.weight, self.bias), self.running_mean, self.running_var
        batch = self.training or mean is None
        tracks = self.training and self.track_running_stats and mean is not None
        present = self.samples_present if batch else None
        if tracks and present is None and len(input) == 1:
            # What is noted depends on the mode alone, not on how many samples there are.
            self.noted = {**self._now(), **self.noted}
            batch = tracks = False
        if not batch:
            assert mean is not None
            assert var is not None
            return with_given(input, own, mean, var, self.eps)
        # Without running statistics there is nothing else to normalise one sample with.
        rest = (mean, var) if tracks else (None, None)
        if present is None:
            found = with_batch(input, own, self.eps)
        else:
            found = with_present(input, own, *rest, present, self.eps)
        if tracks:
            samples = None if present is None else (present != 0).sum()
            self._note(found[1], found[2], samples, input.shape)
        return found[0]

    def _note(self, mean: Tensor, var: Tensor, samples: Tensor | None, shape: torch.Size) -> None:
        """``var`` is that of the batch; the running one is of the population."""
        each = shape[2:].numel()
        enough = None if samples is None else samples > 1
        if samples is None:
            unbiased = var * (shape[0] * each / (shape[0] * each - 1))
        else:
            numbers = (samples * each).to(var.dtype)
            unbiased = var * (numbers / (numbers - 1).clamp(min=1))
        # A layer used twice in a pass continues from its first use.
        now = {**self._now(), **self.noted}
        share: Tensor | float | None = self.momentum
        count = now.get("num_batches_tracked")
        if count is not None:
            count = self.noted["num_batches_tracked"] = count + (1 if enough is None else enough)
            if share is None:
                share = 1 / count.clamp(min=1).to(var.dtype)
        share = 0.0 if share is None else share
        for name, value in (("running_mean", mean), ("running_var", unbiased)):
            before = now[name].to(torch.promote_types(now[name].dtype, value.dtype))
            part = share.to(before.dtype) if isinstance(share, Tensor) else share
            after = torch.lerp(before, value.to(before.dtype), part)
            self.noted[name] = after if enough is None else torch.where(enough, after, before)

    def _now(self) -> Params:
        given = {name: getattr(self, name) for name in STATISTICS}
        return {name: value for name, value in given.items() if value is not None}


class NotedBatchNorm1d(_NotedBatchNorm, nn.BatchNorm1d):
    pass


class NotedBatchNorm2d(_NotedBatchNorm, nn.BatchNorm2d):
    pass


class NotedBatchNorm3d(_NotedBatchNorm, nn.BatchNorm3d):
    pass


BATCH_NORMS: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: NotedBatchNorm1d,
    nn.BatchNorm2d: NotedBatchNorm2d,
    nn.BatchNorm3d: NotedBatchNorm3d,
}


def with_noted_statistics(model: nn.Module) -> nn.Module:
    """A copy of the model whose BatchNorm layers note their new statistics. Names stay."""
    model = copied(model)
    for module in model.modules():
        if type(module) in BATCH_NORMS:
            module.__class__ = BATCH_NORMS[type(module)]
            module.register_buffer(PRESENT, None, persistent=False)
            module.noted = {}  # type: ignore[assignment]
    return model


def present_names(model: nn.Module) -> list[str]:
    """The names under which layers are told which samples are real."""
    return [_full(name, PRESENT) for name, _ in _layers(model)]


def statistics_names(model: nn.Module) -> list[str]:
    """The names of the statistics that a pass in training mode may note."""
    return [
        _full(name, own)
        for name, layer in _layers(model)
        for own in STATISTICS
        if layer.track_running_stats and getattr(layer, own) is not None
    ]


def noted(model: nn.Module) -> Params:
    """The new statistics of the layers that a pass updated, by name; then they are forgotten.
    (Called before a pass, it clears what one that was broken off has left.)"""
    return taken(noting(model))


def noting(model: nn.Module) -> list[tuple[str, _NotedBatchNorm]]:
    """The layers that note their statistics, with their names: looked for once, not every pass."""
    return list(_layers(model))


def taken(layers: Iterable[tuple[str, _NotedBatchNorm]]) -> Params:
    """What these layers have noted, and then forget."""
    found: Params = {}
    for name, layer in layers:
        found.update({_full(name, own): value.detach() for own, value in layer.noted.items()})
        layer.noted = {}
    return found


def _layers(model: nn.Module) -> Iterator[tuple[str, _NotedBatchNorm]]:
    for name, module in model.named_modules():
        if isinstance(module, _NotedBatchNorm):
            yield name, module


def _full(layer: str, own: str) -> str:
    return f"{layer}.{own}" if layer else own
