"""Methods of which a client has a part: only that part is on the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message

import srpfl
import tiny
from flower.federation import Federation
from flower.test_equals_simulation import SPEEDS, Given, check
from srpfl.core.initial import initial_model

METHODS = [srpfl.HeteroFL(widths=(1.0, 0.5, 0.25)), srpfl.PartialTraining(layers=1)]


def numbers(message: Message) -> int:
    """Of the shared part: slots have names with a mark."""
    arrays = message.content["sent"].items()
    return sum(int(array.numpy().size) for name, array in arrays if not name.startswith("@"))


@pytest.mark.parametrize("algorithm", METHODS, ids=lambda each: type(each).__name__)
def test_a_client_gets_and_sends_what_the_clock_charges(tmp_path: Path, algorithm: Any) -> None:
    same: dict[str, Any] = {"algorithm": algorithm, "participation": srpfl.Everyone(), "rounds": 2}
    federation = Federation(tmp_path, SPEEDS, evaluate_every=2, **same)
    down: dict[int, int] = {}
    up: dict[int, int] = {}
    push = federation.grid.push_messages

    def pushed(messages: Any) -> Any:
        for message in messages:
            assigned = message.content["assignment"]
            if message.metadata.message_type == "train" and assigned["round"] == 0:
                down[assigned["client"]] = numbers(message)
        return push(messages)

    def answered(reply: Message) -> Message:
        said = reply.content["answer"]
        if reply.metadata.message_type == "train" and said["round"] == 0:
            up[said["client"]] = numbers(reply)
        return reply

    federation.grid.push_messages = pushed  # type: ignore[method-assign]
    for client in range(len(SPEEDS)):
        federation.of(client).mangle = answered
    deployed = federation.serve()

    parts = algorithm.split(algorithm.prepared(initial_model(tiny.model(), 0)))
    server = algorithm.server_state(parts)
    whole = sum(value.numel() for value in parts.shared.values())
    for client in range(len(SPEEDS)):
        portion = algorithm.portion(parts.shared, server, client)
        assert down[client] == round(portion.down * whole)
        assert up[client] == round(portion.up * whole)
    assert min(up.values()) < whole
    check(tiny.simulate(clock=Given(), **same), deployed, federation)


def test_pieces_come_together_again() -> None:
    from srpfl.core.pieces import cut, filled

    whole = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}
    places = {"w": torch.tensor([[True, False, False], [True, True, False]])}
    rest = {"w": torch.full((2, 3), 9.0)}
    assert filled(cut(whole, places), places, rest)["w"].tolist() == [[0, 9, 9], [3, 4, 9]]
    assert torch.equal(filled(cut(whole, places), places, whole)["w"], whole["w"])
