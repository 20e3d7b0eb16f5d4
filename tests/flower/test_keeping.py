"""Late answers over Flower's grid: kept with their age under FedBuff, dropped otherwise."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message

import srpfl
import tiny
from flower.federation import BASE, DATA, Federation, during
from participation.scripted import Given
from srpfl.flower import Patience
from srpfl.flower.server import serve
from srpfl.flower.transport import TooFewClientsError


def test_a_slow_nodes_answer_is_kept_with_its_age_or_dropped(tmp_path: Path) -> None:
    seconds = [1, 3.5, 1.3]
    kept = Federation(tmp_path / "a", seconds, participation=srpfl.FedBuff(k=2))
    run = kept.serve(rounds=6)
    ages = [
        age
        for record in run.rounds
        for client, age in zip(record.participants, record.ages, strict=True)
        if client == 1
    ]
    assert ages
    assert min(ages) > 0
    assert kept.kept(1).exists() or kept.pending(1).exists()
    assert not kept.events("late")
    dropped = Federation(tmp_path / "b", seconds, participation=srpfl.Doubling(schedule=[(2, 9)]))
    run = dropped.serve(rounds=6)
    assert all(1 not in record.participants for record in run.rounds)
    assert dropped.events("late")


def test_it_is_what_the_simulator_plays(tmp_path: Path) -> None:
    """Whose answers count when, how old they are, and what becomes of model and heads."""
    seconds, policy = (1.0, 3.5, 1.32), srpfl.FedBuff(k=2)
    real = Federation(tmp_path, seconds, participation=policy).serve(rounds=6)
    three = replace(DATA, train_parts=DATA.train_parts[:3], test_parts=DATA.test_parts[:3])
    simulated = tiny.simulate(
        data=three, participation=policy, clock=Given(seconds), rounds=6, evaluate_every=0
    )
    assert [r.participants for r in real.rounds] == [r.participants for r in simulated.rounds]
    assert [r.ages for r in real.rounds] == [r.ages for r in simulated.rounds]
    assert real.state is not None
    assert simulated.state is not None
    for name, value in real.state.shared.items():
        torch.testing.assert_close(value, simulated.state.shared[name], rtol=1e-5, atol=1e-6)


def test_a_node_that_leaves_frees_its_place_and_one_that_comes_is_asked(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 9, 1.3], participation=srpfl.FedBuff(k=1, sample=3))
    federation.grid.nodes.pop(BASE + 2)
    during(lambda: federation.grid.kill(BASE + 1), 3.0, federation)
    during(lambda: federation.join(BASE + 2, 2, 1.3), 30.0, federation)
    run = federation.serve(rounds=90)
    assert any(1 in record.lost for record in run.rounds)
    assert any(2 in record.participants for record in run.rounds)


def leaving(federation: Federation, client: int, at: float) -> None:
    def leave() -> None:
        federation.of(client).online = False

    during(leave, at, federation)


def test_a_buffer_waits_for_its_answers_while_nobody_is_at_work(tmp_path: Path) -> None:
    """As in the simulator: who comes later fills it."""
    federation = Federation(tmp_path, [2, 9, 9], participation=srpfl.FedBuff(k=2))
    for client in (1, 2):
        leaving(federation, client, 3.0)
        during(partial(federation.join, BASE + 10 + client, client, 1), 15.0, federation)
    run = federation.serve(rounds=8)
    assert [len(record.participants) for record in run.rounds] == [2] * 8
    assert run.rounds[0].participants[0] == 0
    assert 15 < run.rounds[0].duration < 20
    assert not federation.events("few")


def test_who_comes_while_others_are_at_work_takes_a_free_place_at_once(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [60.0], clients=2, participation=srpfl.FedBuff(k=1))
    during(lambda: federation.join(BASE + 1, 1, 2), 25.0, federation)
    run = federation.serve(rounds=3)
    assert [record.participants for record in run.rounds] == [[1]] * 3
    assert run.rounds[0].duration < 20  # and not the 60 of client 0


def test_a_buffer_that_nobody_fills_goes_on_and_says_so_once(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [2, 9, 9], participation=srpfl.FedBuff(k=2))
    for client in (1, 2):
        leaving(federation, client, 3.0)
    run = federation.serve(rounds=4)
    assert [record.participants for record in run.rounds] == [[0]] * 4
    [few] = federation.events("few")
    assert "nobody else came within 20 s" in few["why"]
    assert 20 < run.rounds[-1].computing < 40  # it waited once


def test_a_buffer_that_nobody_fills_ends_the_run_where_that_is_wanted(tmp_path: Path) -> None:
    patience = Patience(clients=20.0, poll=0.05, few="fail")
    federation = Federation(tmp_path, [2, 9], participation=srpfl.FedBuff(k=2), patience=patience)
    leaving(federation, 1, 3.0)
    with pytest.raises(TooFewClientsError, match=r"nobody else came .*: start more nodes"):
        federation.serve()


def test_a_node_that_fails_at_once_is_not_asked_all_the_time(tmp_path: Path) -> None:
    """The others take hours. It is asked once in a round, and cannot use the round up."""
    patience = Patience(clients=20.0, poll=0.5, round=20_000.0)
    federation = Federation(
        tmp_path, [4000, 1, 4000], participation=srpfl.FedBuff(k=2), patience=patience
    )
    federation.of(1).config["work"] = "many"
    run = federation.serve(rounds=2)
    assert [sorted(record.participants) for record in run.rounds] == [[0, 2]] * 2
    assert federation.of(1).received.count("train") == 2


def test_after_a_restart_nobody_is_at_work_and_the_run_goes_on(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 6, 1.3], participation=srpfl.FedBuff(k=1), rounds=9)

    class Stop(srpfl.Watcher):
        def round(self, record: object) -> None:
            if record.round == 3:  # type: ignore[attr-defined]
                raise KeyboardInterrupt

    clock = {"now": federation.grid.now, "sleep": federation.grid.sleep}
    with suppress(KeyboardInterrupt):
        serve(federation.experiment, federation.grid, watchers=[Stop()], **clock)
    run = federation.serve()
    assert len(run.rounds) == 9
    assert run.rounds[2].lost  # those who were at work for the server that is gone
    asked = sum(record.asked for record in run.rounds)
    ended = sum(len(r.participants) + len(r.late) + len(r.lost) for r in run.rounds)
    assert run.state is not None
    assert asked == ended + len(run.state.flights)


def test_compass_gives_nodes_parts_of_their_work_as_in_the_simulator(tmp_path: Path) -> None:
    seconds, policy = (1.0, 2.2, 3.9), srpfl.participation.Compass(least=0.2)
    algorithm = srpfl.FedAvg(epochs=5)  # ten steps: a tenth of the work is one of them
    real = Federation(tmp_path, seconds, participation=policy, algorithm=algorithm).serve(rounds=8)
    three = replace(DATA, train_parts=DATA.train_parts[:3], test_parts=DATA.test_parts[:3])
    simulated = tiny.simulate(
        data=three,
        algorithm=algorithm,
        participation=policy,
        clock=Given(seconds),
        rounds=8,
        evaluate_every=0,
    )
    # The server looks for answers now and then, so those close together may change places.
    came = [
        [sorted(zip(r.participants, r.ages, strict=True)) for r in run.rounds]
        for run in (real, simulated)
    ]
    assert came[0] == came[1]
    assert any(age for record in real.rounds for age in record.ages)
    assert real.state is not None
    assert simulated.state is not None
    for name, value in real.state.shared.items():
        torch.testing.assert_close(value, simulated.state.shared[name], rtol=1e-5, atol=1e-6)


class Stepping:
    """A node's clock by which every look at it, so every step, takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


class Noting(srpfl.Deadline):
    """Remembers what parts of their work clients say that they did."""

    def learn(self, memory: Any, outcome: Any) -> Any:
        parts = {str(answer.client): answer.part for answer in outcome.answers}
        return {**memory, "parts": parts}


def test_by_a_deadline_a_node_sends_what_it_has_and_says_which_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten steps of a second each and eight seconds, less a tenth for the way: the first step and
    two looks at the clock leave five, and the half that fits is what a simulated client does."""
    monkeypatch.setattr("srpfl.flower.client.time", Stepping())
    policy = Noting(seconds=8.0, partial=True)
    federation = Federation(
        tmp_path, [1.0], participation=policy, algorithm=srpfl.FedAvg(epochs=5), rounds=1
    )
    real = federation.serve()
    assert real.state is not None
    part = real.state.memory["parts"]["0"]
    assert 0.1 < part < 1
    one = replace(DATA, train_parts=DATA.train_parts[:1], test_parts=DATA.test_parts[:1])
    simulated = tiny.simulate(
        data=one,
        algorithm=srpfl.FedAvg(epochs=5),
        participation=srpfl.Deadline(seconds=10 * part + 0.01, partial=True),
        clock=Given((10.0,)),
        rounds=1,
        evaluate_every=0,
    )
    assert simulated.state is not None
    for name, value in real.state.shared.items():
        torch.testing.assert_close(value, simulated.state.shared[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("part", [0.0, 1e-300, -1.0, 1.5, "0.5", 1])
def test_a_part_of_the_work_that_cannot_be_is_refused(tmp_path: Path, part: Any) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.participation.Compass())

    def lie(reply: Message) -> Message:
        answer = reply.content.config_records.get("answer", {})
        if "part" in answer:
            answer["part"] = part
        return reply

    federation.of(1).mangle = lie
    run = federation.serve(rounds=3)
    assert all(1 not in record.participants for record in run.rounds)
    assert "of its work" in federation.events("refused")[0]["why"]
