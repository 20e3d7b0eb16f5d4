"""The server's side. It never sees a file of a node."""

from srpfl.flower import server_app
from srpfl_own.experiment import experiment

app = server_app(experiment)
