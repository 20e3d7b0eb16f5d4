"""Side-by-side measurements: the engines against the loop that people write by hand."""

from srpfl.bench.measure import Comparison, compare
from srpfl.bench.settings import SETTINGS, Setting

__all__ = ["SETTINGS", "Comparison", "Setting", "compare"]
