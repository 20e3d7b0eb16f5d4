"""An answer that is lost on the way costs its client little, and the run nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

import srpfl
import tiny
from flower.fake_grid import FakeGrid
from flower.federation import BASE, Federation
from srpfl.flower import Patience
from srpfl.flower.parcels import Parcels
from srpfl.flower.reporter import Reporter


class Losing:
    """A node whose answers to some rounds never arrive, though it has done the work."""

    def __init__(self, federation: Federation, client: int, times: int) -> None:
        self.left = times
        self.grid = federation.grid
        usual = self.grid._answer
        node_id = 100 + client

        def answered(number: int, message):  # type: ignore[no-untyped-def]
            reply = usual(number, message)
            if number == node_id and message.metadata.message_type == "train" and self.left:
                self.left -= 1
                return None
            return reply

        self.grid._answer = answered  # type: ignore[method-assign]


def test_a_lost_answer_is_noticed_and_its_client_asked_again(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.FirstN(n=2), rounds=40)
    Losing(federation, 1, times=1)
    run = federation.serve()
    assert [event["client"] for event in federation.events("lost")] == [1]
    assert any(1 in record.participants for record in run.rounds)
    assert "query.doing" in federation.of(1).received
    assert max(record.duration for record in run.rounds) < 5


def test_a_round_that_waits_for_a_lost_answer_goes_on(tmp_path: Path) -> None:
    patience = Patience(clients=20.0, settling=20.0, poll=0.05, round=3600.0)
    federation = Federation(
        tmp_path, [1, 1, 1], participation=srpfl.Everyone(), patience=patience, rounds=3
    )
    Losing(federation, 1, times=1)
    run = federation.serve()
    assert run.rounds[0].participants == [0, 2]
    assert run.rounds[0].duration < 40
    assert [sorted(record.participants) for record in run.rounds[1:]] == [[0, 1, 2]] * 2


@pytest.mark.parametrize("policy", [srpfl.Everyone(), srpfl.FedBuff(k=3)], ids=["all", "kept"])
def test_a_node_that_keeps_silent_costs_its_budget_once(tmp_path: Path, policy: Any) -> None:
    """It is there, joins, and then answers nothing, not even what it is doing."""
    patience = Patience(clients=30.0, settling=20.0, poll=0.5, budget=60.0)
    choices = {"participation": policy, "patience": patience, "rounds": 6, "evaluate_every": 2}
    federation = Federation(tmp_path, [1, 1, 1], **choices)
    usual = federation.grid._answer

    def answered(number: int, message: Any) -> Any:
        silent = number == BASE + 1 and message.metadata.message_type != "query.hello"
        return None if silent else usual(number, message)

    federation.grid._answer = answered  # type: ignore[method-assign]
    run = federation.serve()
    assert {client for record in run.rounds for client in record.participants} == {0, 2}
    assert federation.of(1).received.count("train") == 1
    # What it cost is in the rounds' own times; evaluations do not wait for it either.
    assert 120 < sum(record.duration for record in run.rounds) < 200
    assert federation.grid.time < 220


def test_a_straggler_at_work_is_not_taken_for_lost(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 90, 1], participation=srpfl.FirstN(n=2), rounds=100)
    run = federation.serve()
    assert federation.events("lost") == []
    assert federation.events("late")
    assert federation.of(1).received.count("query.doing") <= 3
    assert len(run.rounds) == 100


@pytest.mark.parametrize("call", ["push_messages", "part", "pull", "get_node_ids"])
def test_a_superlink_that_fails_for_a_while_is_asked_again(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database was locked, or a node stood in the way. Meanwhile the server is not taken for
    dead, and afterwards it looks as often as before."""
    before = Federation(tmp_path / "usual", [1, 1, 1])
    usual = before.serve()
    federation = Federation(tmp_path / "failing", [1, 1, 1])
    place: Any = Parcels if call == "pull" else FakeGrid
    part, call = call == "part", "push_messages" if call == "part" else call
    works, calls, status = getattr(place, call), 0, 500
    reports: list[int] = []
    monkeypatch.setattr(Reporter, "report", lambda self: reports.append(calls))

    def fails(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            if part and status == 500:
                raise ObjectPushError("object", 1, "session")
            request = httpx.Request("POST", "http://superlink")
            raise httpx.HTTPStatusError("", request=request, response=httpx.Response(status))
        return works(*given)

    monkeypatch.setattr(place, call, fails)
    run = federation.serve()
    assert run.state is not None
    assert usual.state is not None
    assert tiny.same(run.state.shared, usual.state.shared)
    assert calls > 3
    assert {2, 3} <= set(reports)
    assert federation.grid.now() < before.grid.now() + 12

    calls, status = 0, 400  # what is wrong is ours, and stays so
    other = Federation(tmp_path / "wrong", [1, 1, 1])
    with pytest.raises(httpx.HTTPStatusError):
        other.serve()
