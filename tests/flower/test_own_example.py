"""The example to copy: own model, own files, several users per node."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from flower.fake_grid import FakeGrid, FakeNode
from srpfl.flower import client_app
from srpfl.flower.server import serve

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_own"


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import srpfl_own.experiment

    yield srpfl_own.experiment
    for name in [name for name in sys.modules if name.startswith("srpfl_own")]:
        del sys.modules[name]


def write_users(folder: Path, users: list[str]) -> None:
    rng = np.random.default_rng(len(users))
    folder.mkdir(parents=True)
    for user in users:
        x = rng.normal(size=(25, 4))
        y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 1)
        np.savetxt(folder / f"{user}.csv", np.column_stack([x, y]), delimiter=",")


def test_users_of_two_nodes_train_and_keep_their_own_heads(own: Any, tmp_path: Path) -> None:
    sites = {"clinic": ["ann", "bob", "cyd"], "school": ["dan", "eve"]}
    run_config = {"experiment": "own", "clients": 6, "users": 3, "rounds": 4, "seed": 0}
    run_config["budget"] = 60.0
    run_config["out"] = str(tmp_path / "run")
    grid = FakeGrid()

    def choices(context: Context) -> Any:
        return own.experiment(Context(1, 1, {}, RecordDict(), run_config))  # type: ignore[arg-type]

    for number, (site, users) in enumerate(sites.items()):
        write_users(tmp_path / site, users)
        config = {"client-id": site, "data-dir": str(tmp_path / site)}
        config["personal-dir"] = str(tmp_path / f"{site}-personal")
        grid.add(100 + number, FakeNode(client_app(choices, own.own_data), config))
    run = serve(choices(None), grid, now=grid.now, sleep=grid.sleep)  # type: ignore[arg-type]
    clients = json.loads((tmp_path / "run" / "clients.json").read_text())
    assert set(clients) == {"clinic/ann", "clinic/bob", "clinic/cyd", "school/dan", "school/eve"}
    took_part = {client for record in run.rounds for client in record.participants}
    heads = list(tmp_path.glob("*-personal/own/*/kept.safetensors"))
    assert len(heads) == len(took_part)
    assert (tmp_path / "clinic-personal" / "own" / "clinic%2Fann").exists()
    assert sum(weight > 0 for weight in run.evaluations[-1].weights) == 5


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_a_node_chooses_how_it_computes(own: Any, tmp_path: Path, engine: str) -> None:
    """In another precision too, what it sends is of the agreed type."""
    run_config = {"experiment": "own", "clients": 1, "users": 1, "rounds": 2, "seed": 0}
    run_config["budget"] = 60.0
    run_config["out"] = str(tmp_path / "run")
    write_users(tmp_path / "site", ["ann"])
    config = {"client-id": "site", "data-dir": str(tmp_path / "site")}
    config |= {"personal-dir": str(tmp_path / "p"), "engine": engine, "precision": "float64"}
    grid = FakeGrid()

    def choices(context: Context) -> Any:
        return own.experiment(Context(1, 1, {}, RecordDict(), run_config))  # type: ignore[arg-type]

    grid.add(100, FakeNode(client_app(choices, own.own_data), config))
    run = serve(choices(None), grid, now=grid.now, sleep=grid.sleep)  # type: ignore[arg-type]
    assert [record.participants for record in run.rounds] == [[0], [0]]
