"""A small federation on the fake grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import srpfl
import tiny
from flower.fake_grid import FakeGrid, FakeNode
from srpfl.data.base import Federated
from srpfl.flower import Experiment, Patience, client_app, share_of
from srpfl.flower.server import serve

DATA = tiny.data()
BASE = 100  # node ids are not clients' numbers


class Federation:
    """Nodes with given speeds, and a server that can be started again and again."""

    def __init__(
        self,
        folder: Path,
        seconds: Sequence[float] = (1, 1, 1),
        data: Federated = DATA,
        **choices: Any,
    ) -> None:
        self.folder, self.data = folder, data
        usual: dict[str, Any] = {
            "name": "trial",
            "model": tiny.model(),
            "algorithm": srpfl.FedRep(head_epochs=2, body_epochs=1),
            "participation": srpfl.FirstN(n=2),
            "clients": len(seconds),
            "out": folder / "run",
            "rounds": 3,
            "evaluate_every": 0,
            "patience": Patience(clients=20.0, settling=20.0, poll=0.05),
        }
        self.experiment = Experiment(**{**usual, **choices})
        self.grid = FakeGrid()
        for client, time in enumerate(seconds):
            self.join(BASE + client, client, time)

    def join(self, node: int, client: int, seconds: float, **changes: Any) -> None:
        self.grid.add(node, self.node(client, seconds, **changes))

    def node(self, client: int, seconds: float, **changes: Any) -> FakeNode:
        # Saying who one is takes no computing.
        def time(kind: str) -> float:
            return seconds if kind in ("train", "evaluate") else 0.01

        config = {"partition-id": client, "personal-dir": str(self.folder / "personal")}
        app = client_app(self.experiment, lambda context: share_of(self.data, client))
        return FakeNode(app, config, time, **changes)

    def join_several(self, node: int, clients: Sequence[int]) -> None:
        """One node with several clients."""
        own = {f"user-{client}": share_of(self.data, client) for client in clients}
        config = {"client-id": f"site-{node}", "personal-dir": str(self.folder / "personal")}
        self.grid.add(node, FakeNode(client_app(self.experiment, lambda context: own), config))

    def of(self, client: int) -> FakeNode:
        return self.grid.nodes[BASE + client]

    def serve(self, *, about: dict[str, Any] | None = None, **changes: Any) -> srpfl.Run:
        experiment = replace(self.experiment, **changes)
        clock = {"now": self.grid.now, "sleep": self.grid.sleep}
        return serve(experiment, self.grid, about=about, **clock)

    def kept(self, client: int) -> Path:
        return self.folder / "personal" / "trial" / str(client) / "kept.safetensors"

    def pending(self, client: int) -> Path:
        return self.kept(client).with_name("pending.safetensors")

    def events(self, what: str) -> list[dict[str, Any]]:
        import json

        lines = (self.folder / "run" / "events.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["what"] == what]


def during(happen: Callable[[], None], seconds: float, federation: Federation) -> None:
    """Something happens at a moment of virtual time."""
    federation.grid.at.append((seconds, happen))
