"""What every other room builds on: the split of a model, local work, randomness."""
