"""Smaller answers: what travels, what is remembered, and that it shows in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import srpfl
import tiny
from flower.federation import Federation
from srpfl.algorithms.base import expected_reply
from srpfl.core.wire import Wire, wire_of
from srpfl.errors import ConfigError
from srpfl.loop.costs import bytes_of

WIRES = ["int8", "top:0.1"]


@pytest.mark.parametrize("wire", [Wire(), Wire(0.3)])
def test_what_is_lost_is_sent_later(wire: Wire) -> None:
    """The sum of what was sent stays within one error of the sum of what was wanted."""
    torch.manual_seed(0)
    error = torch.zeros(40)
    total, sent = torch.zeros(40), torch.zeros(40)
    for _ in range(50):
        change = torch.randn(40)
        wanted = change + error
        there = wire.decoded(wire.encoded(wanted), wanted)
        error = wanted - there
        total, sent = total + change, sent + there
        torch.testing.assert_close(total - sent, error, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("policy", [srpfl.FirstN(n=3), srpfl.FedBuff(k=2)])
def test_engines_agree_and_clients_keep_what_was_lost(wire: str, policy: Any) -> None:
    one, other = (
        tiny.simulate(
            algorithm=srpfl.FedAvg(wire=wire),
            participation=policy,
            engine=engine,
            rounds=4,
            evaluate_every=0,
        )
        for engine in ("loop", "vectorised")
    )
    assert one.state is not None
    assert other.state is not None
    assert one.parts is not None
    for name, value in one.state.shared.items():
        torch.testing.assert_close(value, other.state.shared[name], rtol=1e-2, atol=1e-3)
    client = one.rounds[-1].participants[0]
    assert any(value.any() for value in one.parts.slots_of(client)["wire"].values())


def test_all_of_it_is_as_good_as_full() -> None:
    full, whole = (
        tiny.simulate(algorithm=srpfl.FedRep(head_epochs=1, wire=wire))
        for wire in ("full", "top:1")
    )
    assert full.state is not None
    assert whole.state is not None
    for name, value in full.state.shared.items():
        torch.testing.assert_close(value, whole.state.shared[name], rtol=1e-5, atol=1e-6)


def test_bytes_show_in_what_an_answer_weighs() -> None:
    net = srpfl.models.MLP(64, (64, 32), classes=10)
    weights = {
        wire: bytes_of(expected_reply(srpfl.FedAvg(wire=wire), srpfl.FedAvg().split(net)))
        for wire in ("full", *WIRES)
    }
    assert weights["int8"] < 0.26 * weights["full"]
    assert weights["top:0.1"] < 0.21 * weights["full"]


@pytest.mark.parametrize("wire", WIRES)
def test_on_flower_it_is_what_the_simulator_plays(tmp_path: Path, wire: str) -> None:
    algorithm = srpfl.FedRep(head_epochs=2, body_epochs=1, wire=wire)
    real = Federation(tmp_path, [1, 2, 3, 4, 5, 6], algorithm=algorithm, rounds=3,
                      participation=srpfl.Everyone()).serve()  # fmt: skip
    simulated = tiny.simulate(
        algorithm=algorithm, participation=srpfl.Everyone(), rounds=3, evaluate_every=0
    )
    assert real.state is not None
    assert simulated.state is not None
    for name, value in real.state.shared.items():
        torch.testing.assert_close(value, simulated.state.shared[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["int4", "top", "top:0", "top:x", "top:2"])
def test_other_wires_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="wire is"):
        wire_of(text)
