"""Clocks: how long each client takes and what communication costs."""

from srpfl.clock.base import Clock, Work
from srpfl.clock.devices import DeviceProfiles
from srpfl.clock.exponential import DynamicExponential, FixedExponential, IIDExponential
from srpfl.clock.uneven import Equal, Pareto, TwoGroups

__all__ = [
    "Clock",
    "DeviceProfiles",
    "DynamicExponential",
    "Equal",
    "FixedExponential",
    "IIDExponential",
    "Pareto",
    "TwoGroups",
    "Work",
]
