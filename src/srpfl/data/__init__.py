"""Data sets, and who holds which part of them."""

from srpfl.data import characters
from srpfl.data.adapters import from_arrays, from_datasets, from_frame, from_hub
from srpfl.data.base import Federated, Pooled, Samples, Transform
from srpfl.data.below import precomputed
from srpfl.data.dirichlet import Dirichlet
from srpfl.data.iid import IID
from srpfl.data.interpolated import Interpolated
from srpfl.data.loading import load
from srpfl.data.lognormal import LogNormal
from srpfl.data.natural import Natural, Writers
from srpfl.data.padded import Padded
from srpfl.data.partition import Labels, Partition, Parts
from srpfl.data.picture import counts, draw
from srpfl.data.shards import Shards
from srpfl.data.slow_classes import SlowClasses

__all__ = [
    "IID",
    "Dirichlet",
    "Federated",
    "Interpolated",
    "Labels",
    "LogNormal",
    "Natural",
    "Padded",
    "Partition",
    "Parts",
    "Pooled",
    "Samples",
    "Shards",
    "SlowClasses",
    "Transform",
    "Writers",
    "characters",
    "counts",
    "draw",
    "from_arrays",
    "from_datasets",
    "from_frame",
    "from_hub",
    "load",
    "precomputed",
]
