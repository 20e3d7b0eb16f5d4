"""Data sets, and who holds which part of them."""

from srpfl.data.base import Federated, Pooled, Samples, Transform
from srpfl.data.iid import IID
from srpfl.data.loading import load
from srpfl.data.partition import Labels, Partition, Parts
from srpfl.data.shards import Shards

__all__ = [
    "IID",
    "Federated",
    "Labels",
    "Partition",
    "Parts",
    "Pooled",
    "Samples",
    "Shards",
    "Transform",
    "load",
]
