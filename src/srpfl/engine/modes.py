"""Which layers are in training mode while a phase trains some of the parameters."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn
from torch.nn.modules.batchnorm import _NormBase


def set_modes(model: nn.Module, trained: Collection[str], shared: Collection[str]) -> list[str]:
    """Training mode, except for normalisation layers that this phase does not train: a frozen part
    keeps its running statistics too. A layer without parameters goes with its part. Returns the
    names of the layers whose statistics change."""
    model.train()
    updated: list[str] = []
    for place, module in model.named_modules():
        if not isinstance(module, _NormBase) or not module.track_running_stats:
            continue
        prefix = f"{place}." if place else ""
        own = {f"{prefix}{parameter}" for parameter, _ in module.named_parameters()}
        if not own:
            mine = f"{prefix}running_mean" in shared
            own = {other for other in trained if (other in shared) == mine}
        if own.isdisjoint(trained):
            module.eval()
        elif module.training:  # a model's own train() may keep it frozen
            updated.append(place)
    return updated
