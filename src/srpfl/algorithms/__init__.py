"""Algorithms: what a participant trains and what the server does with it."""

from srpfl.algorithms.base import Algorithm, Evaluation, PersonalHead, SharesAll
from srpfl.algorithms.fedavg import FedAvg, FedAvgFT
from srpfl.algorithms.fedper import FedBABU, FedPer
from srpfl.algorithms.fedrep import FedRep
from srpfl.algorithms.hf_maml import HFMAML
from srpfl.algorithms.lg_fedavg import LGFedAvg

__all__ = [
    "HFMAML",
    "Algorithm",
    "Evaluation",
    "FedAvg",
    "FedAvgFT",
    "FedBABU",
    "FedPer",
    "FedRep",
    "LGFedAvg",
    "PersonalHead",
    "SharesAll",
]
