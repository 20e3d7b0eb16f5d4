"""The model that a run begins with."""

from __future__ import annotations

from collections.abc import Callable
from warnings import warn

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from srpfl.core.backbone import copied
from srpfl.core.randomness import torch_seed
from srpfl.core.streams import streams
from srpfl.errors import ConfigError, SrpflWarning

WAYS = ("reset_parameters", "_reset_parameters")  # attention has the second
OWN_WAY = "_init_weights"  # by which a model of transformers starts its layers
ENOUGH = 64  # numbers, to tell one spread from another


def initial_model(
    model: nn.Module | Callable[[], nn.Module], seed: int, *, pretrained: bool = False
) -> nn.Module:
    """A copy of the model (or what the function returns) with the seed's initial weights. What is
    frozen keeps its values: nobody would train them."""
    with streams(torch_seed(seed, "weights")):
        if not isinstance(model, nn.Module):
            made = model()
            if not isinstance(made, nn.Module):
                raise ConfigError(
                    f"the model must be a torch.nn.Module or a function that returns one, not "
                    f"{type(made).__name__}"
                )
            _check_hooks(made)
            return made
        _check_hooks(model)
        model = copied(model)
        if not pretrained:
            for module in model.modules():
                _reset(module)
    return model


def _check_hooks(model: nn.Module) -> None:
    """A run trains tensors of its own in the place of parameters, and hooks stay with these."""
    for name, value in model.named_parameters():
        if value._backward_hooks:
            raise ConfigError(
                f"'{name}' has a hook on its gradient, which would not be called: change gradients "
                "in a rule instead, as srpfl.Clipped does"
            )


def _reset(module: nn.Module) -> bool:
    """Draw new weights in place of those that training may change; whether the layer knows how."""
    if not any(value.requires_grad for value in module.parameters()):
        return False
    frozen = [value for value in module.parameters(recurse=False) if not value.requires_grad]
    held = [value.data for value in frozen]
    for way in WAYS:
        reset = getattr(module, way, None)
        if callable(reset):
            for value in frozen:
                value.data = torch.empty_like(value)  # to be written over, and left behind
            reset()
    for value, kept in zip(frozen, held, strict=True):
        value.data = kept
    return any(callable(getattr(module, way, None)) for way in WAYS)


def check_start(model: nn.Module) -> None:
    """Warn if an instance has weights that were trained or set by hand: they will be replaced."""
    owners = {id(part): m for m in model.modules() if hasattr(m, OWN_WAY) for part in m.modules()}
    with streams(0):
        for name, module in model.named_modules():
            own = dict(module.named_parameters(recurse=False))
            if not own or any(value.is_meta or is_lazy(value) for value in own.values()):
                continue
            starts = _starts(module, owners.get(id(module)))
            for part, value in own.items():
                if starts and all(_another_start(value.detach(), one[part]) for one in starts):
                    warn(
                        f"the weights of this model are replaced by new ones of the seed, and "
                        f"'{f'{name}.{part}'.lstrip('.')}' looks trained or set by hand: "
                        "pretrained=True keeps them, and a function that returns the model starts "
                        "each seed in its own way",
                        SrpflWarning,
                        stacklevel=4,
                    )
                    return


def _starts(module: nn.Module, owner: nn.Module | None) -> list[dict[str, torch.Tensor]]:
    """What the layer may have begun with: drawn in its own way, or in that of the model of
    transformers that it belongs to."""
    fresh = copied(module)
    if not _reset(fresh):
        return []
    found = [fresh]
    if owner is not None:
        found.append(copied(module))
        try:
            with torch.no_grad():
                getattr(owner, OWN_WAY)(found[-1])
        except Exception:  # whatever a model's own code expects of its layers
            found.pop()
    return [dict(one.named_parameters(recurse=False)) for one in found]


def _another_start(now: torch.Tensor, fresh: torch.Tensor) -> bool:
    """Whether weights cannot well be what a layer begins with: other constants, another mean or
    another spread."""
    if fresh.numel() < 2 or now.shape != fresh.shape or not fresh.is_floating_point():
        return False
    fresh = fresh.detach()
    spread = float(fresh.double().std(correction=0))
    if spread == 0.0:
        return not torch.allclose(now, fresh)
    if fresh.numel() < ENOUGH:
        return False
    if abs(float(now.double().mean() - fresh.double().mean())) > 9 * spread / fresh.numel() ** 0.5:
        return True
    ratio = float(now.double().std(correction=0)) / spread
    slack = 1 + 6 / fresh.numel() ** 0.5  # both are samples
    return not 1 / (1.1 * slack) < ratio < 1.1 * slack
