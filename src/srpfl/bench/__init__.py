"""Side-by-side measurements: the engines against the loop that people write by hand."""

from srpfl.bench.measure import Timing, compare
from srpfl.bench.settings import SETTINGS, BenchCase

__all__ = ["SETTINGS", "BenchCase", "Timing", "compare"]
