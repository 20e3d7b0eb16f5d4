"""The methods by their usual names: an algorithm and a participation policy each.

The names alone are needed to show what the command can do, so algorithms are imported when used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from srpfl.errors import unknown

if TYPE_CHECKING:
    from srpfl.algorithms import Algorithm


@dataclass(frozen=True)
class Method:
    """A name of the literature."""

    kind: str  # a class of srpfl.algorithms
    participation: str = "everyone"  # the policy that the name implies
    twin: str | None = None  # the same algorithm without adaptive participation

    @property
    def algorithm(self) -> type[Algorithm]:
        from srpfl import algorithms

        kind: type[Algorithm] = getattr(algorithms, self.kind)
        return kind


METHODS = {
    "fedavg": Method("FedAvg"),
    "fedavg-ft": Method("FedAvgFT"),
    "flanp": Method("FedAvg", "doubling", twin="fedavg"),
    "flanp-ft": Method("FedAvgFT", "doubling", twin="fedavg-ft"),
    "fedrep": Method("FedRep"),
    "srpfl": Method("FedRep", "doubling", twin="fedrep"),
    "lg-fedavg": Method("LGFedAvg"),
    "lg-srpfl": Method("LGFedAvg", "doubling", twin="lg-fedavg"),
    "hf-maml": Method("HFMAML"),
    "fedper": Method("FedPer"),
    "fedbabu": Method("FedBABU"),
    "scaffold": Method("SCAFFOLD"),
    "fedadam": Method("FedAdam"),
    "ditto": Method("Ditto"),
    "fedprox": Method("FedProx"),
    "feddyn": Method("FedDyn"),
    "fedavgm": Method("FedAvgM"),
    "fedadagrad": Method("FedAdagrad"),
    "fedyogi": Method("FedYogi"),
    "fedbn": Method("FedBN"),
    "fednova": Method("FedNova"),
    "fedgate": Method("FedGATE"),
    "flanp-gate": Method("FedGATE", "doubling", twin="fedgate"),
    "apfl": Method("APFL"),
    "pfedme": Method("PFedMe"),
    "l2gd": Method("L2GD"),
    "per-fedavg": Method("PerFedAvg"),
    "ifca": Method("IFCA"),
    "mean-mtl": Method("MeanRegularised"),
    "fedshuffle": Method("FedShuffle"),
    "mimelite": Method("MimeLite"),
    "local-sgd": Method("LocalSGD"),
    "fedamp": Method("FedAMP"),
    "partial-training": Method("PartialTraining"),
    "mapper": Method("MAPPER"),
    "mocha": Method("MOCHA"),
    "fedproto": Method("FedProto"),
    "actperfl": Method("ActPerFL"),
    "dapper": Method("Dapper"),
    "heterofl": Method("HeteroFL"),
    "ca2fl": Method("CA2FL"),
    "ca2fl-rep": Method("CA2FLRep"),
}


def method(name: str) -> Method:
    """A method by name.

    >>> method("srpfl").twin
    'fedrep'
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
