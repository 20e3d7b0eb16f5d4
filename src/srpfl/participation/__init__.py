"""Participation policies: who is asked, and whose answers a round waits for."""

from srpfl.participation.auto import Auto
from srpfl.participation.base import (
    Answer,
    Call,
    Credit,
    Memory,
    Outcome,
    Participation,
    Sampling,
)
from srpfl.participation.budget import Budgeted
from srpfl.participation.deadlines import TypicalDeadline
from srpfl.participation.divfl import DivFL
from srpfl.participation.doubling import Doubling
from srpfl.participation.everyone import Everyone
from srpfl.participation.first import Deadline, FirstN
from srpfl.participation.flanp import FlanpRule
from srpfl.participation.late import Compass, FedAsync, FedBuff, KeepsLate, SemiAsync
from srpfl.participation.losses import Fair, PowerOfChoice
from srpfl.participation.oort import Oort
from srpfl.participation.selecting import OverSelection, Selecting
from srpfl.participation.speeds import FedCS, TiFL

__all__ = [
    "Answer",
    "Auto",
    "Budgeted",
    "Call",
    "Compass",
    "Credit",
    "Deadline",
    "DivFL",
    "Doubling",
    "Everyone",
    "Fair",
    "FedAsync",
    "FedBuff",
    "FedCS",
    "FirstN",
    "FlanpRule",
    "KeepsLate",
    "Memory",
    "Oort",
    "Outcome",
    "OverSelection",
    "Participation",
    "PowerOfChoice",
    "Sampling",
    "Selecting",
    "SemiAsync",
    "TiFL",
    "TypicalDeadline",
]
