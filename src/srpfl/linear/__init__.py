"""SRPFL in the linear representation case (Algorithm 2): what the theory speaks of, run."""
