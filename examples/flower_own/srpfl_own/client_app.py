"""A node's side."""

from srpfl.flower import client_app
from srpfl_own.experiment import experiment, own_data

app = client_app(experiment, own_data)
