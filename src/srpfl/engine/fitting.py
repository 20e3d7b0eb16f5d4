"""The engine that ``auto`` means: clients as one where that can be done, else one after another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from srpfl.data.base import Federated
from srpfl.engine.base import Engine, Job, Local, Score
from srpfl.engine.loop import LoopEngine
from srpfl.engine.stackable import check_rule, check_stackable
from srpfl.engine.vectorised import VectorisedEngine
from srpfl.errors import ConfigError, SrpflWarning
from srpfl.task import Task

COST = "clients are trained one after another instead, so a round takes as long as all of them"


def stacks(model: nn.Module, data: Federated, task: Task, device: torch.device) -> bool:
    """Whether to train the model as a stack of clients; if it cannot be, it is said why."""
    if device.type == "cpu" and any(isinstance(m, nn.RNNBase) for m in model.modules()):
        # A step is traced again for every number of clients, and a recurrent one, written out for
        # all places of a sequence, takes seconds: more than a run on a CPU gets back.
        return False
    try:
        check_stackable(model, data, task)
    except ConfigError as error:
        _warn(error)
        return False
    return True


class FittingEngine:
    """Stacks of clients, unless the model (see :func:`stacks`) or a job's rule cannot be
    stacked."""

    def __init__(self, model: nn.Module, data: Federated, *, stacks: bool, **choices: Any) -> None:
        self._make_plain: Callable[[], Engine] = partial(LoopEngine, model, data, **choices)
        self._plain: Engine | None = None
        self.stacked = VectorisedEngine(model, data, checked=True, **choices) if stacks else None

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        return self._for(jobs).train(jobs)

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        return self._for(jobs).test(jobs)

    def _for(self, jobs: Sequence[Job]) -> Engine:
        if self.stacked is not None:
            try:
                for rule in [plan.rule for job in jobs for plan in job.plans]:
                    check_rule(rule)
                return self.stacked
            except ConfigError as error:
                if self._plain is None:
                    _warn(error)
        self._plain = self._plain or self._make_plain()
        return self._plain


def _warn(error: ConfigError) -> None:
    text = str(error).partition(": use engine=")[0]
    warnings.warn(f"{text}: {COST}", SrpflWarning, stacklevel=3)
