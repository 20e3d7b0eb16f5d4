"""Nodes are upgraded one after another while a run goes on."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Message

import srpfl
from flower.federation import BASE, Federation, during


def newer(reply: Message) -> Message:
    if reply.metadata.message_type == "query.hello":
        reply.content["answer"]["version"] = "99.0"
    return reply


def older(reply: Message) -> Message:
    if reply.metadata.message_type == "query.hello":
        reply.content["answer"]["protocol"] = 1
    return reply


def restarted(federation: Federation, client: int, leaves: float, **changes: object) -> None:
    """A node that goes, and comes back five seconds later under another id."""

    def leave() -> None:
        federation.of(client).online = False

    def come() -> None:
        federation.join(BASE + 500 + client, client, 1, **changes)

    during(leave, leaves, federation)
    during(come, leaves + 5, federation)


def test_a_run_goes_on_while_nodes_are_upgraded_in_turn(tmp_path: Path) -> None:
    rounds = {"rounds": 40, "participation": srpfl.FirstN(n=2)}
    federation = Federation(tmp_path, [1, 1, 1], **rounds)
    for client in range(3):
        restarted(federation, client, 5.0 + 10 * client, mangle=newer)
    run = federation.serve()
    assert len(run.rounds) == 40
    assert all(len(record.participants) == 2 for record in run.rounds)
    for client in range(3):
        assert "train" in federation.grid.nodes[BASE + 500 + client].received
    assert len(federation.events("other version")) == 3
    assert "has srpfl 99.0" in federation.events("other version")[0]["why"]
    assert federation.kept(0).exists()


def test_a_node_of_another_protocol_is_refused_with_a_sentence(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], rounds=2)
    federation.of(0).mangle = older
    run = federation.serve()
    assert all(sorted(record.participants) == [1, 2] for record in run.rounds)
    assert "install the server's version" in federation.events("refused")[0]["why"]
