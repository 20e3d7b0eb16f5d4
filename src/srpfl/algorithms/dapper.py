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
    each client has trained the whole model on its mixture. λ = 1 is FedAvg with everything
    fine-tuned. The command mixes the data by itself.

    The paper's pseudo-code was not at hand. By its text the shared model is trained on everyone's
    data, then each client trains it further on batches that are its own with probability λ, for all
    λ of a few, and keeps the best. Here a client holds its own points and (1 − λ)/λ times as many
    of everyone's, drawn once; the shared model is trained on these too, whose mean over clients is
    everyone's data; and λ is the user's choice, one for a run."""

    share: float = 0.5  # λ

    headline: ClassVar[Evaluation] = "personalised"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ConfigError(f"Dapper needs a share above 0 and up to 1, not {self.share}")

    def adapts(self, model: nn.Module) -> Predicate:
        return lambda name: True
