"""Algorithms: what a participant trains and what the server does with it."""

from srpfl.algorithms.actperfl import ActPerFL
from srpfl.algorithms.apfl import APFL
from srpfl.algorithms.base import Algorithm, Evaluation, PersonalHead, SharesAll
from srpfl.algorithms.ca2fl import CA2FL, CA2FLRep
from srpfl.algorithms.dapper import Dapper
from srpfl.algorithms.ditto import Ditto
from srpfl.algorithms.fedadam import FedAdam
from srpfl.algorithms.fedamp import FedAMP
from srpfl.algorithms.fedavg import FedAvg, FedAvgFT
from srpfl.algorithms.fedbn import FedBN
from srpfl.algorithms.feddyn import FedDyn
from srpfl.algorithms.fedgate import FedGATE
from srpfl.algorithms.fednova import FedNova
from srpfl.algorithms.fedopt import FedAdagrad, FedAvgM, FedYogi
from srpfl.algorithms.fedper import FedBABU, FedPer
from srpfl.algorithms.fedproto import FedProto
from srpfl.algorithms.fedprox import FedProx
from srpfl.algorithms.fedrep import FedRep
from srpfl.algorithms.fedshuffle import FedShuffle
from srpfl.algorithms.heterofl import HeteroFL
from srpfl.algorithms.hf_maml import HFMAML
from srpfl.algorithms.ifca import IFCA
from srpfl.algorithms.l2gd import L2GD
from srpfl.algorithms.lg_fedavg import LGFedAvg
from srpfl.algorithms.local_sgd import LocalSGD
from srpfl.algorithms.mapper import MAPPER
from srpfl.algorithms.mean_regularised import MeanRegularised
from srpfl.algorithms.mimelite import MimeLite
from srpfl.algorithms.mocha import MOCHA
from srpfl.algorithms.partial import PartialTraining
from srpfl.algorithms.per_fedavg import PerFedAvg
from srpfl.algorithms.pfedme import PFedMe
from srpfl.algorithms.scaffold import SCAFFOLD
from srpfl.core.plan import Phase, Plan
from srpfl.core.slots import Reply

__all__ = [
    "APFL",
    "CA2FL",
    "HFMAML",
    "IFCA",
    "L2GD",
    "MAPPER",
    "MOCHA",
    "SCAFFOLD",
    "ActPerFL",
    "Algorithm",
    "CA2FLRep",
    "Dapper",
    "Ditto",
    "Evaluation",
    "FedAMP",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgFT",
    "FedAvgM",
    "FedBABU",
    "FedBN",
    "FedDyn",
    "FedGATE",
    "FedNova",
    "FedPer",
    "FedProto",
    "FedProx",
    "FedRep",
    "FedShuffle",
    "FedYogi",
    "HeteroFL",
    "LGFedAvg",
    "LocalSGD",
    "MeanRegularised",
    "MimeLite",
    "PFedMe",
    "PartialTraining",
    "PerFedAvg",
    "PersonalHead",
    "Phase",
    "Plan",
    "Reply",
    "SharesAll",
]
