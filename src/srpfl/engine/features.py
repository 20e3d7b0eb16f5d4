"""Passes without gradients: what heads see of samples, computed for many of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from srpfl.data.base import IntArray, Transform
from srpfl.engine.base import Loss
from srpfl.engine.cohort import Cohort
from srpfl.engine.dropout import key_names
from srpfl.engine.inputs import inputs
from srpfl.engine.precision import Precision, called
from srpfl.engine.steps import Problem
from srpfl.split import Params


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
    loss: Loss
    most: int

    def inputs(self, x: Tensor, index: Tensor, moves: Tensor | None = None) -> Tensor:
        """What a model sees of the samples at ``index``."""
        return inputs(self.transform, x, index, moves, self.precision)

    def features_by_run(
        self,
        body: nn.Module,
        cohort: Cohort,
        runs: IntArray,
        index: Tensor,
        moves: Tensor | None = None,
        keys: Tensor | None = None,
        width: int = 1,
    ) -> Tensor:
        """:meth:`features` of batches of that width, each through the body of its own run."""
        x = cohort.held.x
        if len(cohort.common) == 1:
            [common] = cohort.common.values()
            return self.features(body, common, x, index, moves, keys, width)
        index = index.reshape(-1, width)
        moves = None if moves is None else moves.reshape(-1, width, moves.shape[-1])
        places = {int(run): np.flatnonzero(runs == run) for run in np.unique(runs)}
        parts: list[Tensor] = []
        for run, mine in places.items():
            some = torch.as_tensor(mine, device=index.device)
            own_moves = None if moves is None else moves[some].flatten(0, 1)
            own_keys = None if keys is None else keys[some]
            own = index[some].flatten()
            common = cohort.common[run]
            parts.append(self.features(body, common, x, own, own_moves, own_keys, width))
        order = np.argsort(np.concatenate(list(places.values())))
        features = torch.cat(parts)
        batches = features.reshape(-1, width, *features.shape[1:])
        return batches[torch.as_tensor(order, device=index.device)].flatten(0, 1)

    def features(
        self,
        body: nn.Module,
        common: Params,
        x: Tensor,
        index: Tensor,
        moves: Tensor | None = None,
        keys: Tensor | None = None,
        width: int = 1,
    ) -> Tensor:
        """What heads see of the samples at ``index``. With keys, one for each batch of that
        width, dropout is on."""
        dropout = tuple(key_names(body)) if keys is not None else ()
        body.train(bool(dropout))
        problem = Problem(self.precision.lowered(called(body)), self.loss, dropout)
        inside = body.state_dict().keys()
        common = {name: value for name, value in common.items() if name in inside}
        each = max(1, self.most // width) * width
        parts: list[Tensor] = []
        with torch.no_grad():
            for start in range(0, len(index), each):
                some = slice(start, start + each)
                images = self.inputs(x, index[some], None if moves is None else moves[some])
                if dropout and keys is not None:
                    own = keys[start // width : (start + each) // width]
                    batches = images.reshape(-1, width, *images.shape[1:])
                    features = problem.outputs({}, common, batches, own).flatten(0, 1)
                else:
                    features = problem.forward(common, images)
                parts.append(features)
        return torch.cat(parts)
