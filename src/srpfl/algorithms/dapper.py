"""Dapper (Mansour et al., 2020): personal models from the client's data and some of all others'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from srpfl.algorithms.base import Evaluation
from srpfl.algorithms.fedavg import FedAvg
from srpfl.core.split import Predicate
from srpfl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Dapper(FedAvg):
    """Each client's model minimises the loss on λD_i + (1 − λ)D, its own data and everyone's, from
    the shared model on: that is FedAvg on ``srpfl.data.Interpolated(data, share=λ)``, judged after
    each client has trained the whole model on its mixture. Over clients the mixtures make D, so the
    shared model is FedAvg's. λ = 1 is FedAvg with everything fine-tuned. The command mixes the data
    by itself; λ is chosen from a few by the user, where the paper tries them all.
    Written from what the paper says of the method; not compared with its pseudo-code."""

    share: float = 0.5  # λ

    headline: ClassVar[Evaluation] = "personalised"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ConfigError(f"Dapper needs a share above 0 and up to 1, not {self.share}")

    def adapts(self, model: nn.Module) -> Predicate:
        return lambda name: True
