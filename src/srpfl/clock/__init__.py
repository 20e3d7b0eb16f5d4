"""Clocks: how long each client takes and what communication costs."""

from srpfl.clock.base import Clock, ComesAndGoes, Work
from srpfl.clock.devices import DeviceProfiles
from srpfl.clock.exponential import DynamicExponential, FixedExponential, IIDExponential
from srpfl.clock.masked import Masked
from srpfl.clock.phones import Dropouts, Phones
from srpfl.clock.uneven import Equal, Pareto, TwoGroups

__all__ = [
    "Clock",
    "ComesAndGoes",
    "DeviceProfiles",
    "Dropouts",
    "DynamicExponential",
    "Equal",
    "FixedExponential",
    "IIDExponential",
    "Masked",
    "Pareto",
    "Phones",
    "TwoGroups",
    "Work",
]
