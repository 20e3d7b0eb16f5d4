"""Apps that take their experiment from the options of ``srpfl run``, sent along as run config.

``srpfl deploy local`` uses them. For an app of your own, see examples/flower.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flwr.app import Context

from srpfl.clock import FixedExponential
from srpfl.flower.client import client_app
from srpfl.flower.data import OwnData, share_of
from srpfl.flower.experiment import Experiment, Patience
from srpfl.flower.server import server_app
from srpfl.options.config import Config
from srpfl.options.experiment import build_data, experiment

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "srpfl-deployment"
version = "1.0.0"
description = "srpfl on Flower"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "srpfl"

[tool.flwr.app.components]
serverapp = "srpfl_deployment:server"
clientapp = "srpfl_deployment:client"

[tool.flwr.app.config]
options = {options}
patience = {patience}
out = {out}
"""


def write_app(
    folder: Path, *, options: dict[str, Any], patience: dict[str, Any], out: Path
) -> Path:
    """A Flower app that plays these options; Flower wants one in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {name: value for name, value in options.items() if value is not None}
    # A JSON text as a JSON string is a TOML string too.
    text = PYPROJECT.format(
        options=json.dumps(json.dumps(given)),
        patience=json.dumps(json.dumps(patience)),
        out=json.dumps(str(out.absolute())),
    )
    (folder / "pyproject.toml").write_text(text)
    (folder / "srpfl_deployment.py").write_text(
        '"""Made by srpfl deploy."""\n\nfrom srpfl.flower.configured import client, server\n\n'
        '__all__ = ["client", "server"]\n'
    )
    return folder


def from_options(context: Context) -> Experiment:
    patience = json.loads(str(context.run_config["patience"]))
    return deployed(_config(context), patience=patience, out=Path(str(context.run_config["out"])))


def deployed(config: Config, *, patience: dict[str, Any], out: Path) -> Experiment:
    """The experiment that these options stand for."""
    choices = experiment(config)
    return Experiment(
        **{name: choices[name] for name in ("name", "model", "algorithm", "participation", "task")},
        **{
            name: choices[name]
            for name in ("rounds", "seed", "evaluations", "evaluate_at", "stop_at")
        },
        evaluate_every=config.evaluate_every,
        clients=choices["data"].clients,
        out=out,
        patience=Patience(**patience),
        options=choices["options"],
    )


def share(context: Context) -> OwnData:
    """The share of the data that a simulated client of this number would have."""
    data = build_data(_config(context), FixedExponential())
    return share_of(data, int(context.node_config["partition-id"]))


def _config(context: Context) -> Config:
    return Config.of(json.loads(str(context.run_config["options"])), "the run config")


server = server_app(from_options)
client = client_app(from_options, share)
