"""Clocks: how long each client takes and what communication costs."""

from srpfl.clock.base import Clock, Work
from srpfl.clock.devices import DeviceProfiles
from srpfl.clock.exponential import DynamicExponential, FixedExponential, IIDExponential

__all__ = [
    "Clock",
    "DeviceProfiles",
    "DynamicExponential",
    "FixedExponential",
    "IIDExponential",
    "Work",
]
