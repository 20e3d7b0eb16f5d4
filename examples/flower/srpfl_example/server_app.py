"""The server's side."""

from srpfl.flower import server_app
from srpfl_example.experiment import experiment

app = server_app(experiment)
