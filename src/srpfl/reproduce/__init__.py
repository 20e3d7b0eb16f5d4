"""The paper's experiments: the grid of runs, its table, its figure, and a check of all that."""

from srpfl.reproduce.grid import DATASETS, FIGURES, TRAININGS, Panel, train
from srpfl.reproduce.page import check, diverged, write

__all__ = ["DATASETS", "FIGURES", "TRAININGS", "Panel", "check", "diverged", "train", "write"]
