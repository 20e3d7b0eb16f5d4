"""A trained model to use elsewhere: plain PyTorch, with what its inputs need."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from srpfl.core.backbone import numbers_of
from srpfl.core.slots import Slots, unpacked
from srpfl.core.split import Params, state_of
from srpfl.core.trees import Tree, mapped
from srpfl.data.base import Transform
from srpfl.errors import ConfigError, RunFolderError, SrpflWarning
from srpfl.runs.checkpoint import DAMAGE, listed, verified
from srpfl.runs.files import PERSONAL, SHARED
from srpfl.runs.flights import MARK
from srpfl.runs.segments import CLIENTS, Segment
from srpfl.runs.shelf import number_of


class TrainedModel(nn.Module):
    """A network with the transform of its data in front of it: give it samples as they were stored.

    Anything that works on a ``torch.nn.Module`` works on this: ``torch.save``, ``torch.export``,
    ``.to("cuda")``. ``network`` and ``transform`` are the two parts of it.
    """

    def __init__(self, network: nn.Module, transform: Any) -> None:
        super().__init__()
        self.network, self.transform = network, transform
        self.eval()

    def forward(self, x: Tree) -> Tensor:
        """What the network says of samples, which are tensors or arrays (or tuples or dicts)."""
        numbers = numbers_of(self.network)
        prepared = self.transform.prepare(mapped(_tensor, x), numbers)
        if isinstance(prepared, Mapping):
            outputs: Tensor = self.network(**prepared)
        elif isinstance(prepared, tuple):
            outputs = self.network(*prepared)
        else:
            outputs = self.network(prepared)
        return outputs


def _tensor(values: Any) -> Tensor:
    """PyTorch warns of arrays that are read-only, as those of a pandas table are."""
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        values = values.copy()
    return torch.as_tensor(values)


@dataclasses.dataclass(frozen=True)
class Weights:
    """What a run has learnt, in memory or read from its folder."""

    shared: Params
    server: Slots
    personal: Params  # one client's, if it ever took part
    slots: Slots
    took_part: bool


def read_weights(folder: Path, client: int, *, sealed: bool) -> Weights:
    """The newest good weights of a run folder, with one client's own."""
    for place in reversed(listed(folder)):
        try:
            content = verified(place, sealed=sealed)
            sent = load_file(place / SHARED)
            shared, server = unpacked({n: v for n, v in sent.items() if not n.startswith(MARK)})
            kept = _kept(folder / PERSONAL, content, client)
            return Weights(shared, server, *unpacked(kept or {}), took_part=kept is not None)
        except DAMAGE:
            continue
    raise RunFolderError(
        f"{folder} holds no weights: only the records are there (checkpoints/ is missing or "
        "damaged), so play the run again to have its models"
    )


def _kept(personal: Path, content: Mapping[str, Any], client: int) -> Params | None:
    """What a client has kept, from the newest of the files that have a row of it."""
    if "personal" in content:  # an older folder's
        mark = f"{client}/"
        for name in content["hashes"]:
            held = load_file(personal / name)
            if mine := {n.removeprefix(mark): v for n, v in held.items() if n.startswith(mark)}:
                return mine
        return None
    for name in sorted(content["hashes"], key=number_of, reverse=True):
        with safe_open(personal / name, framework="pt") as file:
            places = (file.get_tensor(CLIENTS) == client).nonzero()
        if len(places):
            return Segment(personal / name).row(int(places[0]))
    return None


def filled(model: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the model with these weights in it, ready to be asked."""
    made = copy.deepcopy(model)
    there = state_of(made)
    wrong = [n for n, v in weights.items() if n not in there or there[n].shape != v.shape]
    if wrong:
        raise ConfigError(
            f"this is not the network of the run: it has no '{wrong[0]}' of shape "
            f"{tuple(weights[wrong[0]].shape)}"
        )
    made.load_state_dict({**there, **weights}, strict=False)  # tied weights go by one name
    return made.eval().requires_grad_(False)


def transform_of(config: Mapping[str, Any]) -> Transform:
    """The transform that a run folder tells of."""
    told = config.get("transform")
    if not isinstance(told, Mapping) or told.get("kind") != "Transform":
        raise RunFolderError(
            "this folder does not say how samples become inputs (it is older, or the data have a "
            "transform of their own): give transform=data.transform"
        )
    fields = {f.name for f in dataclasses.fields(Transform)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in told.items()
        if name in fields
    }
    return Transform(**values)


def untrained(client: int) -> None:
    """Say that a client's own part has never been trained."""
    warn(
        f"client {client} never took part in this run, so its personal part is the untrained one: "
        "take a client that did, or train this part on the client's data",
        SrpflWarning,
        stacklevel=3,  # the line that asked the run for it
    )
