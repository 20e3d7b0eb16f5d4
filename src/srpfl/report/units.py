"""What time is counted in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srpfl.runs.results import Results

SECONDS = {"RealTime", "DeviceProfiles"}
UNITS = {
    "FixedExponential": "1 = mean time of a client",
    "IIDExponential": "1 = mean time of a client",
    "DynamicExponential": "1 = mean time of the fastest client",
}


def time_unit(runs: Sequence[Results]) -> str:
    """Seconds where the clock has them; what one is on the paper's clocks."""
    clocks = [run.config.get("clock") for run in runs]
    known = [clock for clock in clocks if isinstance(clock, Mapping)]
    kinds = {str(clock.get("kind", "")) for clock in known}
    if kinds and kinds <= SECONDS:
        return "s"
    units = {UNITS.get(kind) for kind in kinds}
    unit = units.pop() if len(units) == 1 else None
    return unit if unit and all(clock.get("rate") == 1 for clock in known) else "clock units"
