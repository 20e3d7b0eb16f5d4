"""Passes without gradients: what heads see of samples, computed for many of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from srpfl.core.split import Params
from srpfl.core.trees import Tree, mapped
from srpfl.data.base import IntArray, Transform
from srpfl.engine.cohort import Cohort
from srpfl.engine.dropout import key_names
from srpfl.engine.inputs import inputs
from srpfl.engine.modes import set_modes
from srpfl.engine.precision import Precision
from srpfl.engine.steps import Objective
from srpfl.task import Task


class Once(NamedTuple):
    """What is computed of samples once, for all steps of a phase."""

    rows: Tensor  # of consecutive samples
    offset: int = 0  # the place of the first of them among those that are held

    def at(self, index: Tensor) -> Tensor:
        """Those at the places; padding, which is at place 0, may see any."""
        return self.rows[(index - self.offset).clamp(min=0)]


@dataclass
class Passes:
    """Samples through common parts of a model, so many at a time."""

    transform: Transform
    precision: Precision
    task: Task
    most: int
    fixed: Params
    drops: bool = False  # whether the model calls dropout by itself, without a layer

    def random(self, body: nn.Module) -> bool:
        """Whether a body is another function in every step."""
        return self.drops or bool(key_names(body))

    def inputs(self, x: Tree, index: Tensor, moves: Tensor | None = None) -> Tree:
        """What a model sees of the samples at ``index``."""
        return inputs(self.transform, x, index, moves, self.precision)

    def features_by_job(
        self,
        body: nn.Module,
        cohort: Cohort,
        owners: IntArray,
        index: Tensor,
        moves: Tensor | None = None,
        keys: Tensor | None = None,
        width: int = 1,
    ) -> Tensor:
        """:meth:`features` of batches of that width, each through the body of its own job, as in
        training."""
        x = cohort.held.x
        if len(cohort.common) == 1:
            [common] = cohort.common.values()
            return self.features(body, common, x, index, moves, keys, width, training=True)
        index = index.reshape(-1, width)
        moves = None if moves is None else moves.reshape(-1, width, moves.shape[-1])
        places = {int(job): np.flatnonzero(owners == job) for job in np.unique(owners)}
        parts: list[Tensor] = []
        for job, mine in places.items():
            some = torch.as_tensor(mine, device=index.device)
            own_moves = None if moves is None else moves[some].flatten(0, 1)
            own_keys = None if keys is None else keys[some]
            own = index[some].flatten()
            common = cohort.common[job]
            given = (own, own_moves, own_keys, width)
            parts.append(self.features(body, common, x, *given, training=True))
        order = np.argsort(np.concatenate(list(places.values())))
        features = torch.cat(parts)
        batches = features.reshape(-1, width, *features.shape[1:])
        return batches[torch.as_tensor(order, device=index.device)].flatten(0, 1)

    def features(
        self,
        body: nn.Module,
        common: Params,
        x: Tree,
        index: Tensor,
        moves: Tensor | None = None,
        keys: Tensor | None = None,
        width: int = 1,
        *,
        training: bool = False,
    ) -> Tensor:
        """What heads see of the samples at ``index``, in training or in a test. With keys, one for
        each batch of that width, dropout is on."""
        dropout = tuple(key_names(body))
        random = keys is not None and self.random(body)
        if training:
            set_modes(body, (), ())
        else:
            body.eval()
        inside = body.state_dict().keys()
        fixed = {name: value for name, value in self.fixed.items() if name in inside}
        objective = Objective(self.precision.called(body, fixed), self.task, dropout)
        common = {name: value for name, value in common.items() if name in inside}
        each = max(1, self.most // width) * width
        parts: list[Tensor] = []
        with torch.no_grad():
            for start in range(0, len(index), each):
                some = slice(start, start + each)
                chosen = self.inputs(x, index[some], None if moves is None else moves[some])
                if random and keys is not None:
                    own = keys[start // width : (start + each) // width]
                    batches = mapped(lambda t: t.reshape(-1, width, *t.shape[1:]), chosen)
                    features, _ = objective.outputs({}, common, batches, own)
                    features = features.flatten(0, 1)
                else:
                    features, _ = objective.forward(common, chosen)
                parts.append(features)
        return torch.cat(parts)
