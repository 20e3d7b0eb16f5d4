"""What a run of steps is made of, apart from its tensors."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from srpfl.core.rules import Rule
from srpfl.engine.steps import Objective
from srpfl.engine.updates import has_fused_update


class StepKind(NamedTuple):
    """What the steps are steps of."""

    objective: Objective
    rule: Rule
    ragged: bool  # whether a client may be through before the others

    @property
    def fused(self) -> bool:
        """Whether the rule's update can be left to PyTorch's own."""
        return has_fused_update(self.rule) and not self.ragged

    def identity(self) -> Hashable:
        try:
            rule = hash(self.rule)
        except TypeError:
            rule = id(self.rule)
        return self.objective, type(self.rule), rule, repr(self.rule), self.ragged
