"""Studies whose results are kept in the repository, one command each."""
