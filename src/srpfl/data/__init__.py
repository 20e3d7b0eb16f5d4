"""Data sets, and who holds which part of them."""

from srpfl.data.base import Federated, Pooled, Samples, Transform
from srpfl.data.dirichlet import Dirichlet
from srpfl.data.iid import IID
from srpfl.data.loading import load
from srpfl.data.lognormal import LogNormal
from srpfl.data.partition import Labels, Partition, Parts
from srpfl.data.picture import counts, draw
from srpfl.data.shards import Shards
from srpfl.data.slow_classes import SlowClasses
from srpfl.data.writers import Writers

__all__ = [
    "IID",
    "Dirichlet",
    "Federated",
    "Labels",
    "LogNormal",
    "Partition",
    "Parts",
    "Pooled",
    "Samples",
    "Shards",
    "SlowClasses",
    "Transform",
    "Writers",
    "counts",
    "draw",
    "load",
]
