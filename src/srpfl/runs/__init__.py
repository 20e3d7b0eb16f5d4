"""A run as it is kept: records, folder, checkpoints, and what can be read from them."""
