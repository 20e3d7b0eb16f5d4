"""Many runs, each in a folder of its own: on local processes, in turn, or on Ray."""

from __future__ import annotations

from srpfl.sweeps.playing import sweep
from srpfl.sweeps.result import Row, Sweep

__all__ = ["Row", "Sweep", "sweep"]
