"""Rounds over Flower's grid: the first n, and nobody else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from flwr.app import Message

import srpfl
import tiny
from flower.federation import BASE, DATA, Federation, during
from srpfl.flower import Patience
from srpfl.flower.roll import Numbers
from srpfl.flower.transport import TooFewClientsError
from srpfl.runs.files import write_text


def test_a_round_goes_on_without_the_slow_one(tmp_path: Path) -> None:
    run = Federation(tmp_path, [1, 50, 2]).serve()
    assert [record.participants for record in run.rounds] == [[0, 2]] * 3
    assert run.rounds[-1].computing < 3 * 3


def test_a_late_answer_changes_nothing(tmp_path: Path) -> None:
    slow = Federation(tmp_path / "a", [1, 3.5, 1])
    never = Federation(tmp_path / "b", [1, 1e6, 1])
    one, other = slow.serve(rounds=6), never.serve(rounds=6)
    assert slow.events("late")
    assert [r.participants for r in one.rounds] == [[0, 2]] * 6
    assert one.state is not None
    assert other.state is not None
    assert tiny.same(one.state.shared, other.state.shared)
    assert not slow.kept(1).exists()


def test_an_answer_that_comes_between_two_rounds_is_late_too(tmp_path: Path) -> None:
    schedule = srpfl.Doubling(schedule=[(2, 1), (3, 1)])
    federation = Federation(tmp_path, [1, 5, 1], participation=schedule)
    federation.serve(rounds=2)  # the second round waits for the straggler before it begins
    assert [event["client"] for event in federation.events("late")] == [1]


def test_a_straggler_is_evaluated_when_it_is_done_with_its_stale_work(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 9, 1])
    federation.serve(rounds=1, evaluate_every=1)
    assert [event["client"] for event in federation.events("late")] == [1]
    assert federation.events("not evaluated") == []


def test_a_busy_node_is_given_no_more_work(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1e6, 1])
    run = federation.serve()
    assert federation.of(1).received.count("train") == 1
    assert [record.asked for record in run.rounds] == [3, 2, 2]


def test_more_answers_at_once_than_needed_are_cut_to_n(tmp_path: Path) -> None:
    run = Federation(tmp_path, [1, 1, 1, 1]).serve()
    assert [record.participants for record in run.rounds] == [[0, 1]] * 3
    assert run.rounds[0].late == [2, 3]


def test_autos_first_round_hears_also_those_who_come_soon_after(tmp_path: Path) -> None:
    auto = srpfl.Auto(start=1, margin=0.1)  # a tenth longer: up to 22 s
    run = Federation(tmp_path, [20, 21.5, 50], participation=auto).serve(rounds=1)
    assert run.rounds[0].participants == [0, 1]
    assert 22 <= run.rounds[0].duration < 23


def test_a_busy_machine_changes_nothing(tmp_path: Path) -> None:
    """Who was first goes by the server's clock, however long this process takes to compute it."""

    def late(reply: Message) -> Message:
        time.sleep(0.1)
        return reply

    federation = Federation(tmp_path, [1.0, 1.15, 1.1], participation=srpfl.Everyone(), rounds=2)
    for client in range(3):
        federation.of(client).mangle = late
    assert [record.participants for record in federation.serve().rounds] == [[0, 2, 1]] * 2


def test_a_deadline_ends_the_round(tmp_path: Path) -> None:
    run = Federation(tmp_path, [1, 2, 9], participation=srpfl.Deadline(seconds=4.0)).serve(rounds=1)
    assert run.rounds[0].participants == [0, 1]
    assert run.rounds[0].duration == 4.0


def test_a_deadline_without_answers_takes_the_first_one(tmp_path: Path) -> None:
    run = Federation(tmp_path, [9, 7, 8], participation=srpfl.Deadline(seconds=4.0)).serve(rounds=1)
    assert run.rounds[0].participants == [1]


def test_waiting_for_a_busy_client_is_charged_to_the_round(tmp_path: Path) -> None:
    schedule = srpfl.Doubling(schedule=[(2, 1), (3, 1)])
    run = Federation(tmp_path, [1, 10, 1], participation=schedule).serve(rounds=2)
    assert run.rounds[1].participants[-1] == 1
    assert run.rounds[1].computing == pytest.approx(20, abs=1)  # its stale work, then the new


def test_too_few_clients_go_on_or_fail_by_choice(tmp_path: Path) -> None:
    goes_on = Federation(tmp_path / "a", [1], clients=3)
    run = goes_on.serve(rounds=1)
    assert run.rounds[0].participants == [0]
    assert goes_on.events("few")
    fails = Federation(tmp_path / "b", [1], clients=3, patience=Patience(clients=5.0, few="fail"))
    with pytest.raises(TooFewClientsError, match="1 idle clients after 5 s, 2 are needed"):
        fails.serve()


def test_absent_clients_are_waited_for_once_and_not_in_every_round(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1], clients=3, participation=srpfl.Everyone())
    run = federation.serve(rounds=3)
    assert [record.participants for record in run.rounds] == [[0, 1]] * 3
    assert run.rounds[0].duration > 20 > run.rounds[1].duration + run.rounds[2].duration
    assert len(federation.events("few")) == 1


def test_no_client_at_all_is_a_clear_failure(tmp_path: Path) -> None:
    with pytest.raises(TooFewClientsError, match="start more nodes"):
        Federation(tmp_path, [], clients=3).serve()


def test_a_killed_node_is_not_waited_for_longer_than_flower_needs_to_notice(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [5, 5, 5], participation=srpfl.Everyone())
    during(lambda: federation.grid.kill(BASE + 1), 3.0, federation)
    run = federation.serve()
    assert [record.participants for record in run.rounds] == [[0, 2], [0, 2], [0, 2]]
    assert federation.events("left")
    assert run.rounds[0].duration < 65


def test_a_client_that_comes_later_is_asked_from_then_on(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [3, 3], clients=3, participation=srpfl.Everyone())
    during(lambda: federation.join(BASE + 2, 2, 3), 22.0, federation)
    run = federation.serve()
    assert run.rounds[-1].participants == [0, 1, 2]


def test_a_restarted_node_is_the_same_client(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone())

    def restart() -> None:
        federation.of(1).online = False
        federation.join(777, 1, 1)

    during(restart, 1.5, federation)
    run = federation.serve(rounds=4)
    assert run.rounds[-1].participants == [0, 1, 2]
    assert federation.grid.nodes[777].received.count("train") >= 1


def test_two_nodes_cannot_be_one_client(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone())
    federation.join(777, 1, 1)
    federation.serve()
    assert federation.events("waits")
    assert (federation.of(1).received + federation.grid.nodes[777].received).count("train") == 3


def test_named_clients_keep_their_number_over_a_restart_of_the_server(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1])
    for client, name in enumerate(["clinic", "school", "bank"]):
        federation.of(client).config = {
            "client-id": name,
            "personal-dir": str(tmp_path / "personal"),
        }
    federation.serve()
    before = (tmp_path / "run" / "clients.json").read_text()
    federation.grid.nodes = dict(reversed(federation.grid.nodes.items()))
    federation.serve()
    assert (tmp_path / "run" / "clients.json").read_text() == before


def test_a_name_can_take_the_number_of_another_and_that_is_said(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone())
    federation.of(1).config["partition-id"] = "clinic"  # the first that is free: 0, or 1
    federation.of(0).free_at = 2.0
    federation.serve(rounds=1)
    [refused] = federation.events("refused")
    assert "is '0', and that number is client 'clinic' here" in refused["why"]


def test_a_client_gives_up_when_its_time_is_up(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone())
    federation.of(1).budget = 0.0
    run = federation.serve(rounds=1)
    assert run.rounds[0].participants == [0, 2]
    assert [event["client"] for event in federation.events("gave up")] == [1]
    assert not federation.pending(1).exists()


def test_a_client_that_raises_is_named_and_the_round_goes_on(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], participation=srpfl.Everyone())
    federation.of(1).config["work"] = "many"
    run = federation.serve(rounds=1)
    assert run.rounds[0].participants == [0, 2]
    assert "invalid literal" in federation.events("failed")[0]["why"]


def test_evaluation_tests_everyone_also_stragglers(tmp_path: Path) -> None:
    run = Federation(tmp_path, [1, 9, 1]).serve(rounds=2, evaluate_every=1)
    assert {record.kind for record in run.evaluations} == {"personalised", "local"}
    for record in run.evaluations:
        assert record.weights == [len(DATA.test(client).y) for client in range(3)]
    assert run.evaluations[0].computing == run.rounds[0].computing


def test_a_folder_can_be_compared_like_a_simulated_one(tmp_path: Path) -> None:
    from srpfl.runs.comparison import compare

    federation = Federation(tmp_path, [1, 1, 1])
    federation.serve(evaluate_every=1)
    loaded = srpfl.Run.load(tmp_path / "run")
    result = compare([loaded], communication=[0.0])
    assert result.rows[0].method == "trial"
    loaded.plot(tmp_path / "plot.png")


def test_what_is_kept_of_clients_is_written_once_for_all_who_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grows with them: written for each, it would grow with the square of their number."""
    from srpfl.flower import roll

    written: list[int] = []

    def counting(path: Path, text: str) -> None:
        written.append(len(text))
        write_text(path, text)

    monkeypatch.setattr(roll, "write_text", counting)
    data = tiny.data(clients=40)
    Federation(tmp_path, [1] * 40, data=data).serve(rounds=1)
    assert len(Numbers(40, tmp_path / "run").by_name) == 40
    assert len(written) <= 3
