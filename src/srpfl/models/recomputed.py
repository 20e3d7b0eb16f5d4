"""Less memory for more work: the inner results of a model's blocks are not kept."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from srpfl.core.backbone import RECOMPUTED, copied
from srpfl.errors import ConfigError


def recomputed(module: nn.Module, blocks: str | Sequence[str] | None = None) -> nn.Module:
    """A copy of the module whose blocks are computed again in the backward pass, on every engine.

    Results stay the same; only what goes into a block is kept, and a step computes each block
    twice. ``blocks`` are names as they stand in the module (``"layer"``, ``"layer.5"``); a list of
    blocks stands for all of them. By default, all that stand in a list.

    >>> net = nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(2, 2) for _ in range(3))})
    >>> [name for name, part in recomputed(net).named_modules() if getattr(part, RECOMPUTED, 0)]
    ['layers.0', 'layers.1', 'layers.2']
    """
    made = copied(module)
    parts = {place: part for place, part in made.named_modules() if place}
    lists = [place for place, part in parts.items() if isinstance(part, nn.ModuleList)]
    names = [blocks] if isinstance(blocks, str) else lists if blocks is None else list(blocks)
    chosen: list[str] = []
    for name in names:
        found = [place for place in parts if f".{place}".endswith(f".{name}")]
        if not found:
            raise ConfigError(f"the model has no part named '{name}'")
        for place in found:
            inside = [f"{place}.{number}" for number, _ in parts[place].named_children()]
            chosen += inside if place in lists else [place]
    if not chosen:
        raise ConfigError("the model has no list of blocks: name those to compute again")
    for place in chosen:
        block = made.get_submodule(place)
        kept = block.state_dict().keys() - dict(block.named_parameters()).keys()
        if kept:
            raise ConfigError(
                f"'{place}' has buffers ('{min(kept)}'), which a second pass would write twice: "
                "name blocks without them"
            )
        if not any(place.startswith(f"{other}.") for other in chosen):
            setattr(block, RECOMPUTED, True)
    return made
