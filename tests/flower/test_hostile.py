"""A node that sends anything but answers stops nobody and changes nothing."""

from __future__ import annotations

import copy
import resource
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, Error, Message

import srpfl
import tiny
from flower.federation import BASE, DATA, Federation, during
from flower.hostile import Hostile
from srpfl.flower.roll import Numbers


@pytest.mark.slow
def test_a_thousand_random_records_change_nothing(tmp_path: Path) -> None:
    algorithm = srpfl.FedRep(head_epochs=1, tuning_epochs=1)
    choices = {"rounds": 20, "evaluate_every": 1, "algorithm": algorithm}
    seconds = [1, 1, 1, 1]
    bad = Federation(tmp_path / "bad", seconds, participation=srpfl.Everyone(), **choices)
    hostile = bad.of(3).mangle = Hostile(seed=1)
    hostile.records = 1  # it introduces itself properly, else nobody would ask it anything
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = bad.serve()
    assert hostile.records > 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB
    good = Federation(tmp_path / "good", seconds, participation=srpfl.Everyone(), **choices)
    del good.grid.nodes[BASE + 3]
    other = good.serve()
    assert run.state is not None
    assert other.state is not None
    assert tiny.same(run.state.shared, other.state.shared)
    assert [r.participants for r in run.rounds] == [r.participants for r in other.rounds]
    assert [e.clients for e in run.evaluations] == [e.clients for e in other.evaluations]
    assert [e.value for e in run.evaluations] == [e.value for e in other.evaluations]
    refused = bad.events("refused") + bad.events("failed") + bad.events("lost")
    assert {event["client"] for event in refused} <= {3, None}  # None: an answer to no question
    assert len(refused) >= 20
    assert all(event["why"].isprintable() for event in refused)


class Forger:
    """Answers of a node once more, to letters of others, and to letters that nobody wrote."""

    def __init__(self, federation: Federation, node: int) -> None:
        self.node, self.forged = node, 0
        self._pull = federation.grid.pull_messages
        federation.grid.pull_messages = self.pull  # type: ignore[method-assign]

    def pull(self, ids: Iterable[str]) -> Iterable[Message]:
        wanted = list(ids)
        found = list(self._pull(wanted))
        mine = [message for message in found if message.metadata.src_node_id == self.node]
        forged = [
            self.to(letter, message)
            for message in mine
            for letter in [*wanted, "m1", "m99999", message.metadata.reply_to_message_id]
        ]
        forged += [
            self.to(letter, Message(Error(5, "gone"), reply_to=message))
            for message in mine
            for letter in wanted
            if letter != message.metadata.reply_to_message_id
        ]
        self.forged += len(forged)
        return [*forged, *found, *forged]

    def to(self, letter: str, message: Message) -> Message:
        other = copy.deepcopy(message)
        other.metadata.__dict__["_reply_to_message_id"] = letter
        other.metadata.__dict__["_src_node_id"] = self.node
        return other


def test_answers_that_nobody_asked_for_change_nothing(tmp_path: Path) -> None:
    """The forger's own answers are good ones, and count once."""
    choices = {"participation": srpfl.Everyone(), "evaluate_every": 1}
    bad = Federation(tmp_path / "bad", [1, 1, 1], **choices)
    forger = Forger(bad, BASE + 2)
    run = bad.serve()
    other = Federation(tmp_path / "good", [1, 1, 1], **choices).serve()
    assert forger.forged > 30
    assert run.state is not None
    assert other.state is not None
    assert tiny.same(run.state.shared, other.state.shared)
    assert [r.participants for r in run.rounds] == [r.participants for r in other.rounds]
    assert [e.clients for e in run.evaluations] == [e.clients for e in other.evaluations]
    assert {event["why"] for event in bad.events("refused")} == {"node 102 was not asked"}


def test_a_node_that_cannot_introduce_itself_is_not_asked(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1, 1], participation=srpfl.Everyone())
    federation.of(3).mangle = Hostile(seed=2)
    run = federation.serve()
    assert [r.participants for r in run.rounds] == [[0, 1, 2]] * 3
    assert federation.events("refused") or federation.events("failed")
    assert "train" not in federation.of(3).received


def claims(weight: float, sums: list[float]):  # type: ignore[no-untyped-def]
    def mangle(reply):  # type: ignore[no-untyped-def]
        if reply.metadata.message_type == "evaluate":
            for kind in ("personalised", "local"):
                reply.content["answer"][f"{kind}/weight"] = weight
                reply.content["answer"][f"{kind}/sums"] = sums
        return reply

    return mangle


def test_a_node_cannot_claim_more_test_samples_than_it_joined_with(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], evaluate_every=3)
    federation.of(1).mangle = claims(4.6e18, [4.6e18])
    run = federation.serve()
    assert [record.weights[1] for record in run.evaluations] == [0.0, 0.0]
    assert all(record.value < 1.0 for record in run.evaluations)
    assert "and joined with" in federation.events("not evaluated")[0]["why"]


def test_an_evaluation_that_nobody_answers_has_no_value(tmp_path: Path) -> None:
    """0 of 0 would be the best of errors, and end a run that looks for it."""
    federation = Federation(tmp_path, [1, 1, 1], rounds=2, evaluate_every=1)
    for client in range(3):
        federation.of(client).mangle = claims(4.6e18, [4.6e18])
    run = federation.serve()
    assert (len(run.rounds), run.evaluations) == (2, [])
    assert {event["client"] for event in federation.events("not evaluated")} == {0, 1, 2}


def test_a_node_that_joins_with_a_huge_test_set_is_weighed_down(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], evaluate_every=3, outweigh=2.0)

    def joins(reply):  # type: ignore[no-untyped-def]
        if reply.metadata.message_type == "query.hello":
            reply.content["answer"]["test"] = [1 << 39]
        return claims(float(1 << 39), [float(1 << 39)])(reply)

    federation.of(1).mangle = joins
    run = federation.serve()
    for record in run.evaluations:
        others = sorted(record.weights)[:2]
        assert record.weights[1] == pytest.approx(2 * max(others))
        assert record.clients[1] == 1.0
    assert federation.events("outweighs")


@pytest.mark.parametrize("participation", [srpfl.Everyone(), srpfl.FedBuff(k=3)])
def test_a_node_that_joins_with_a_huge_training_set_is_weighed_down(
    tmp_path: Path, participation: Any
) -> None:
    """Where answers weigh by their samples, it would be the model."""

    def shared(claimed: int, outweigh: float) -> Any:
        choices = {"algorithm": srpfl.FedAvg(weighting="samples"), "outweigh": outweigh}
        folder = tmp_path / str(claimed)
        federation = Federation(folder, [1, 1, 1], participation=participation, **choices)

        def claims(reply: Any) -> Any:
            kind = reply.metadata.message_type
            name, value = {"query.hello": ("train", [claimed])}.get(kind, ("samples", claimed))
            if kind in ("query.hello", "train"):
                reply.content["answer"][name] = value
            return reply

        federation.of(1).mangle = claims
        run = federation.serve(rounds=1)
        assert run.state is not None
        return run.state.shared, len(federation.events("outweighs"))

    usual = min(DATA.size(0), DATA.size(2))
    huge, cut = shared(1 << 40, 3.0)
    fair, whole = shared(3 * usual, 3.0)
    assert (cut, whole) == (1, 0)
    assert tiny.same(huge, fair)


@pytest.mark.parametrize("judge", ["mean", "trimmed", "median"])
def test_a_robust_way_of_judging_counts_clients_alike(tmp_path: Path, judge: str) -> None:
    from srpfl.flower.judging import over_clients

    run = Federation(tmp_path, [1, 1, 1], evaluate_every=3, judge=judge).serve()
    for record in run.evaluations:
        assert record.value == over_clients(record, judge)  # type: ignore[arg-type]


def test_a_name_with_escape_codes_is_shown_harmless(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    federation = Federation(tmp_path, [1, 1, 1])
    federation.of(0).config["partition-id"] = "evil\n\x1b[2Jsrpfl: the run is over"
    federation.serve()
    assert "\x1b" not in capsys.readouterr().out
    assert any("evil\\n\\x1b" in event["why"] for event in federation.events("joined"))


def test_another_model_on_a_node_is_refused_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import replace

    from srpfl.flower import client_app, share_of

    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone())
    other = replace(federation.experiment, model=srpfl.models.MLP(8, (5, 3), classes=4))
    federation.of(1).app = client_app(other, lambda context: share_of(DATA, 1))
    run = federation.serve()
    assert [r.participants for r in run.rounds] == [[0, 2]] * 3
    why = federation.events("refused")[0]["why"]
    assert "another model or algorithm" in why
    # The node hears it too, and says it in its own log.
    assert federation.of(1).received == ["query.hello", "query.refused"]
    assert f"the server refuses this node: {why}" in capsys.readouterr().out


def test_a_refused_node_may_say_anything_to_that(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1, 1], clients=3, participation=srpfl.Everyone())

    def odd(reply: Any) -> Any:
        if reply.metadata.message_type == "query.refused":
            reply.content["answer"] = ArrayRecord()
        return reply

    federation.of(3).mangle = odd
    run = federation.serve()
    assert [r.participants for r in run.rounds] == [[0, 1, 2]] * 3
    assert "this run is for 3 clients" in federation.events("refused")[0]["why"]
    assert len(federation.events("refused")) == 1
    assert federation.of(3).received == ["query.hello", "query.refused"]


def swapped(federation: Federation) -> None:
    """In the middle of the run another node comes with the name of the one that goes."""

    def swap() -> None:
        federation.of(1).online = False
        federation.join(777, 1, 1)

    during(swap, 2.2, federation)


def test_with_keys_a_name_belongs_to_its_node(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], authenticated=True, rounds=12)
    swapped(federation)
    run = federation.serve()
    assert "belongs to the key of node 101" in federation.events("refused")[0]["why"]
    assert all(1 not in record.participants for record in run.rounds[3:])


def test_a_node_cannot_take_the_places_of_others(tmp_path: Path) -> None:
    """It comes first and claims to be everybody."""
    federation = Federation(tmp_path, [1, 1, 1], authenticated=True, rounds=2)
    federation.of(0).free_at = federation.of(1).free_at = 5.0

    def everybody(reply):  # type: ignore[no-untyped-def]
        if reply.metadata.message_type == "query.hello":
            said = {"names": ["0", "1", "2"], "train": [9] * 3, "test": [9] * 3}
            reply.content["answer"].update(said)
        return reply

    federation.of(2).mangle = everybody
    run = federation.serve()
    assert [sorted(record.participants) for record in run.rounds] == [[0, 1]] * 2
    assert "is 3 clients, and a node may be 1" in federation.events("refused")[0]["why"]


def test_nor_can_it_take_them_one_after_another(tmp_path: Path) -> None:
    """It comes and goes before others are there, with another name each time."""
    federation = Federation(tmp_path, [1, 1, 1], authenticated=True, rounds=2)
    federation.of(0).online = federation.of(1).online = False
    hostile = federation.of(2)

    def comes(online: bool, name: int) -> None:
        hostile.online, hostile.config["partition-id"] = online, name

    for name in (0, 1):
        during(partial(comes, False, name), 3.0 + 6 * name, federation)
        during(partial(comes, True, name), 6.0 + 6 * name, federation)
    during(lambda: federation.join(100, 0, 1), 16.0, federation)
    during(lambda: federation.join(101, 1, 1), 16.0, federation)
    run = federation.serve()
    assert [sorted(record.participants) for record in run.rounds] == [[0, 1]] * 2
    why = federation.events("refused")[0]["why"]
    assert "is 2 clients with '2', which it was before, and a node may be 1" in why
    # A server that is started again knows it too.
    again = Numbers(3, tmp_path / "run")
    assert again.names_of == {BASE: {"0"}, BASE + 1: {"1"}, BASE + 2: {"2"}}


def test_without_keys_it_is_said_that_another_node_took_a_name(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], rounds=12)
    swapped(federation)
    federation.serve()
    assert "another node than before" in federation.events("joined")[-1]["why"]
