"""Personalised federated learning that does not wait for stragglers."""

from srpfl import data, models
from srpfl.algorithms import HFMAML, FedAvg, FedAvgFT, FedBABU, FedPer, FedRep, LGFedAvg
from srpfl.clock import DeviceProfiles, DynamicExponential, FixedExponential, IIDExponential
from srpfl.errors import SrpflError
from srpfl.local import SGD, Adam, HessianFreeMAML
from srpfl.participation import Auto, Deadline, Doubling, Everyone, FirstN, FlanpRule
from srpfl.run import Run
from srpfl.simulation import simulate
from srpfl.split import combine, partition
from srpfl.together import simulate_together
from srpfl.watchers import Watcher

__version__ = "0.1.0"

__all__ = [
    "HFMAML",
    "SGD",
    "Adam",
    "Auto",
    "Deadline",
    "DeviceProfiles",
    "Doubling",
    "DynamicExponential",
    "Everyone",
    "FedAvg",
    "FedAvgFT",
    "FedBABU",
    "FedPer",
    "FedRep",
    "FirstN",
    "FixedExponential",
    "FlanpRule",
    "HessianFreeMAML",
    "IIDExponential",
    "LGFedAvg",
    "Run",
    "SrpflError",
    "Watcher",
    "combine",
    "data",
    "models",
    "partition",
    "simulate",
    "simulate_together",
]
