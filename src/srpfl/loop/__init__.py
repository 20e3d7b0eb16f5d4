"""The round loop and everything that drives it: rounds, whole runs, evaluation."""
