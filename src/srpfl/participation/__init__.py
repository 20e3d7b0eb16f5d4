"""Participation policies: whose answers a round waits for."""

from srpfl.participation.auto import Auto
from srpfl.participation.base import Call, Memory, Outcome, Participation, Sampling
from srpfl.participation.doubling import Doubling
from srpfl.participation.everyone import Everyone
from srpfl.participation.first import Deadline, FirstN
from srpfl.participation.flanp import FlanpRule

__all__ = [
    "Auto",
    "Call",
    "Deadline",
    "Doubling",
    "Everyone",
    "FirstN",
    "FlanpRule",
    "Memory",
    "Outcome",
    "Participation",
    "Sampling",
]
