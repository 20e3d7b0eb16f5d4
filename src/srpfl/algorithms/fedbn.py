"""FedBN (Li et al., 2021): the layers of normalisation stay with the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from srpfl.algorithms.base import Algorithm, Evaluation
from srpfl.algorithms.fedavg import amount
from srpfl.core.plan import Phase
from srpfl.core.split import Predicate, predicate
from srpfl.errors import ConfigError

NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


@dataclass(frozen=True, kw_only=True)
class FedBN(Algorithm):
    """Everything is trained; BatchNorm's weights and statistics (or those of the other layers of
    normalisation) are personal. A client is judged with its own ("local")."""

    epochs: int | None = 1
    steps: int | None = None

    headline: ClassVar[Evaluation] = "local"

    def is_personal(self, model: nn.Module) -> Predicate:
        layers = model.named_modules()
        # Those without weights or statistics have nothing to keep.
        norms = [n for n, layer in layers if isinstance(layer, NORMS) and layer.state_dict()]
        if not norms:
            raise ConfigError("FedBN keeps layers of normalisation, and the model has none")
        return predicate(model, norms)

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        return (amount(shared | personal, self.epochs, self.steps),)
