"""Deployment on Flower: the simulator's algorithms and policies on real clients.

Needs ``pip install 'srpfl[flower]'``; nothing else in srpfl imports it.
"""

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "deployment needs Flower: pip install 'srpfl[flower]'", name="flwr"
    ) from error

from srpfl.flower.client import client_app
from srpfl.flower.data import OwnData, share_of
from srpfl.flower.experiment import Experiment, Patience
from srpfl.flower.server import server_app

__all__ = ["Experiment", "OwnData", "Patience", "client_app", "server_app", "share_of"]
