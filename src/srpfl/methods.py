"""The methods by their usual names: an algorithm and a participation policy each."""

from __future__ import annotations

from dataclasses import dataclass

from srpfl.algorithms import (
    HFMAML,
    Algorithm,
    FedAvg,
    FedAvgFT,
    FedBABU,
    FedPer,
    FedRep,
    LGFedAvg,
)
from srpfl.errors import unknown


@dataclass(frozen=True)
class Method:
    """A name of the literature."""

    algorithm: type[Algorithm]
    participation: str = "everyone"  # the policy that the name implies
    twin: str | None = None  # the same algorithm without adaptive participation


METHODS = {
    "fedavg": Method(FedAvg),
    "fedavg-ft": Method(FedAvgFT),
    "flanp": Method(FedAvg, "doubling", twin="fedavg"),
    "flanp-ft": Method(FedAvgFT, "doubling", twin="fedavg-ft"),
    "fedrep": Method(FedRep),
    "srpfl": Method(FedRep, "doubling", twin="fedrep"),
    "lg-fedavg": Method(LGFedAvg),
    "lg-srpfl": Method(LGFedAvg, "doubling", twin="lg-fedavg"),
    "hf-maml": Method(HFMAML),
    "fedper": Method(FedPer),
    "fedbabu": Method(FedBABU),
}


def method(name: str) -> Method:
    """A method by name.

    >>> method("srpfl").twin
    'fedrep'
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
