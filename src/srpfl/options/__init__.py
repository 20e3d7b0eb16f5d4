"""The options of the command, and the way from there to the choices."""
