"""A deployment whose server learns the sum of the answers, and nothing of a single one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message

import srpfl
import tiny
from flower.federation import Federation, during
from flower.hostile import Hostile
from flower.test_equals_simulation import SPEEDS, Given, check
from privacy.curious import laid_bare, looks_random
from srpfl.algorithms.summed import SecurePrivate
from srpfl.errors import ConfigError
from srpfl.flower.transport import TooFewClientsError
from srpfl.loop.rounds import NoAnswerError
from srpfl.privacy import epsilon, spent
from srpfl.privacy.secure import unmasked

SECURE = srpfl.FedRep(head_epochs=1, body_epochs=1, average="secure")
PLAIN = replace(SECURE, average="mean")
NOISY = replace(SECURE, average="secure:0.5,0.2")


class Spy:
    """All that a node sends, as the server gets it."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    def __call__(self, reply: Message) -> Message:
        self.seen.append(reply)
        return reply

    def answers(self) -> list[Message]:
        return [reply for reply in self.seen if reply.metadata.message_type == "train"]


@pytest.mark.parametrize("kind", [srpfl.FedAvg, srpfl.FedRep, srpfl.FedAdam])
def test_it_equals_the_simulators_secure_sum_to_the_last_bit(tmp_path: Path, kind: Any) -> None:
    algorithm = replace(kind(), average="secure", tuning_epochs=1)
    same: dict[str, Any] = {"algorithm": algorithm, "participation": srpfl.Everyone(), "rounds": 3}
    simulated = tiny.simulate(clock=Given(), **same)
    federation = Federation(tmp_path, SPEEDS, **same)
    deployed = federation.serve()
    check(simulated, deployed, federation)
    assert [r.loss for r in deployed.rounds] == pytest.approx([r.loss for r in simulated.rounds])


def test_with_thirty_percent_late_it_is_the_sum_of_those_who_count(tmp_path: Path) -> None:
    speeds = [1.0, 1.5, 400.0, 2.0, 2.5, 300.0, 3.0, 3.5, 4.0, 500.0]
    policy, data = srpfl.FirstN(n=7), tiny.data(clients=10)
    federation = Federation(tmp_path, speeds, algorithm=SECURE, participation=policy, data=data)
    run = federation.serve(rounds=1)
    assert [record.participants for record in run.rounds] == [[0, 1, 3, 4, 6, 7, 8]]
    plain = Federation(tmp_path / "plain", speeds, algorithm=PLAIN, participation=policy, data=data)
    other = plain.serve(rounds=1)
    assert run.state is not None
    assert other.state is not None
    for name, value in other.state.shared.items():
        assert (run.state.shared[name] - value).abs().max() < 1e-6  # float32 of a mean
    assert run.rounds[0].loss == pytest.approx(other.rounds[0].loss, rel=1e-6)


def test_nothing_that_a_client_sends_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[tuple[Any, ...]] = []

    def curious(*all_of_it: Any) -> Any:
        known.append(all_of_it)
        return unmasked(*all_of_it)

    monkeypatch.setattr("srpfl.flower.masked.unmasked", curious)
    federation = Federation(tmp_path, [1, 1, 1, 50], algorithm=SECURE, rounds=2)
    spies = {client: Spy() for client in range(4)}
    for client, spy in spies.items():
        federation.of(client).mangle = spy
    federation.serve(participation=srpfl.FirstN(n=3))
    sent = [reply for client in range(3) for reply in spies[client].answers()]
    assert len(sent) == 6
    for reply in sent:
        assert set(reply.content["answer"]) == {"status", "client", "round"}  # no loss, no size
        [(_, array)] = reply.content["sent"].items()
        assert looks_random(array.numpy())
    first, second = (reply.content["sent"]["sum"].numpy() for reply in sent[:2])
    assert looks_random(first - second)  # no mask serves twice
    assert len(known) == 2
    for masked, *rest in known:
        for client in masked:  # also with all that was revealed for the sum
            assert looks_random(laid_bare(client, masked, *rest))


class Noted:
    """What each client adds to each sum, before it is masked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.vectors: list[np.ndarray] = []
        self.fewest: list[int] = []
        made = SecurePrivate.vector

        def noted(hides: Any, sent: Any, part: Any, loss: float, answers: int) -> Any:
            vector = made(hides, sent, part, loss, answers)
            clipped = replace(hides, noise=0.0).noisy(sent, part, answers)
            self.vectors.append(np.stack([vector[:-1].numpy(), clipped.numpy()]))
            self.fewest.append(answers)
            assert int(vector[-1]) == 0  # the loss stays at home
            return vector

        monkeypatch.setattr(SecurePrivate, "vector", noted)


def test_with_given_noise_it_equals_the_simulator_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srpfl.algorithms.private.entropy", lambda key, sent, place: b"given")
    everyone = srpfl.Everyone()
    same: dict[str, Any] = {"algorithm": NOISY, "participation": everyone, "rounds": 3}
    federation = Federation(tmp_path, SPEEDS, **same)
    check(tiny.simulate(clock=Given(), **same), federation.serve(), federation)


def test_the_sum_is_that_of_clipped_noisy_answers_with_thirty_percent_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, sums = Noted(monkeypatch), list[np.ndarray]()
    monkeypatch.setattr(
        "srpfl.flower.masked.unmasked", lambda *a: sums.append(unmasked(*a)) or sums[-1]
    )
    speeds, data = [1, 1.5, 400, 2, 2.5, 300, 3, 3.5, 4, 500], tiny.data(clients=10)
    federation = Federation(tmp_path, speeds, algorithm=NOISY, data=data, rounds=1)
    run = federation.serve(participation=srpfl.FirstN(n=7))
    assert [record.participants for record in run.rounds] == [[0, 1, 3, 4, 6, 7, 8]]
    noisy, clipped = np.sum(noted.vectors[:7], axis=0)  # the nodes' order is that of their speed
    assert np.array_equal(sums[0].view(np.int64)[:-1], noisy)
    assert set(noted.fewest) == {7}
    seen = (noisy - clipped).std() / 2**32
    assert seen == pytest.approx(0.5 * 0.2, rel=0.25)
    assert spent(srpfl.Run.load(tmp_path / "run")).epsilon == epsilon(0.2, 1)


def test_a_node_that_is_set_up_for_noise_sends_nothing_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted(monkeypatch)
    federation = Federation(tmp_path, [1, 1, 1], algorithm=NOISY, rounds=2)
    federation.serve(participation=srpfl.Everyone())
    assert len(noted.vectors) == 6
    for noisy, clipped in noted.vectors:
        assert np.mean(noisy != clipped) > 0.99
    noises = [tuple(noisy - clipped) for noisy, clipped in noted.vectors]
    assert len(set(noises)) == 6  # each answer has noise of its own


@pytest.mark.parametrize("other", [PLAIN, SECURE, replace(SECURE, average="secure:0.5,0.1")])
def test_a_server_with_other_terms_is_not_served(tmp_path: Path, other: Any) -> None:
    federation = Federation(tmp_path, [1, 1, 1], algorithm=NOISY, rounds=1)
    spies = [federation.of(client) for client in range(3)]
    for node in spies:
        node.mangle = Spy()
    with pytest.raises(TooFewClientsError, match="model"):
        federation.serve(algorithm=other)
    assert not any(node.mangle.answers() for node in spies)


@pytest.mark.parametrize("algorithm", [SECURE, NOISY])
def test_who_leaves_at_work_does_not_stop_those_who_are_left(
    tmp_path: Path, algorithm: Any
) -> None:
    """The sum of a secure round goes on without it; with noise for four in the three others'
    answers nothing is revealed, and the round is played again."""
    federation = Federation(tmp_path, [1, 1, 1, 30], algorithm=algorithm, rounds=2)
    during(lambda: federation.grid.kill(103), 2.5, federation)
    sent = federation.of(0).mangle = Spy()
    run = federation.serve(participation=srpfl.Everyone())
    assert [len(record.participants) for record in run.rounds] == [3, 3]
    assert len(sent.answers()) == 2 + (algorithm is NOISY)
    assert [event["why"] for event in federation.events("revealed")] == ["a sum of 3"] * 2


def test_a_sum_that_was_revealed_and_refused_is_accounted_for(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], algorithm=NOISY, rounds=2)
    node, times = federation.of(1), list[int]()

    def nonsense_once(reply: Message) -> Message:
        if reply.metadata.message_type == "train" and not times:
            times.append(1)
            return nonsense(reply)
        return reply

    node.mangle = nonsense_once
    federation.serve(participation=srpfl.Everyone())
    found = spent(srpfl.Run.load(tmp_path / "run"))
    assert (found.rounds, found.most) == (3, 3)
    assert found.epsilon == epsilon(0.2, 3)


def test_a_client_never_sends_a_plain_answer(tmp_path: Path) -> None:
    """Also not to a server that asks for one as if nothing were masked."""
    federation = Federation(tmp_path, [1, 1, 1], algorithm=SECURE, rounds=1)
    asked = federation.grid.push_messages

    def without_masks(messages: Any) -> Any:
        for message in messages:
            if message.metadata.message_type == "train":
                del message.content["masks"]
        return asked(messages)

    federation.grid.push_messages = without_masks  # type: ignore[method-assign]
    with pytest.raises(NoAnswerError):
        federation.serve()
    assert "masked answers only" in federation.events("failed")[0]["why"]


def test_a_server_cannot_ask_twice_with_two_lists(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], algorithm=SECURE, rounds=1)
    asked = federation.grid.push_messages

    def twice(messages: Any) -> Any:
        letters = list(messages)
        ids = list(asked(letters))
        for message in letters:
            masks = message.content.config_records.get("masks", ConfigRecord())
            if masks.get("stage") == "reveal":
                other = Message(
                    message.content, message.metadata.dst_node_id, message.metadata.message_type
                )
                federation.grid.sleep(1.0)
                again.append(next(iter(asked([other]))))
        return ids

    again: list[str] = []
    federation.grid.push_messages = twice  # type: ignore[method-assign]
    federation.serve()
    federation.grid.sleep(10.0)
    [*replies] = federation.grid.pull_messages(again)
    assert replies
    assert all("reveals its shares once" in str(reply.error.reason) for reply in replies)


def test_who_leaves_between_two_letters_is_done_without(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1, 30, 1], algorithm=SECURE, rounds=3)
    during(lambda: federation.grid.kill(103), 2.5, federation)
    run = federation.serve(participation=srpfl.FirstN(n=3))
    assert len(run.rounds) == 3
    assert all(3 not in record.participants for record in run.rounds)


@pytest.mark.parametrize("seed", range(3))
def test_a_hostile_member_raises_nothing(tmp_path: Path, seed: int) -> None:
    """It can spoil a sum, as nobody can look at what it adds; it cannot stop the server."""
    federation = Federation(tmp_path, [1, 1, 1, 1, 1], algorithm=SECURE, rounds=3)
    hostile = federation.of(4).mangle = Hostile(seed=seed)
    hostile.records = 1
    run = federation.serve(participation=srpfl.FirstN(n=3))
    assert len(run.rounds) == 3
    assert federation.events("refused") or federation.events("failed")


def nonsense(reply: Message) -> Message:
    if reply.metadata.message_type == "train":
        like = reply.content["sent"]["sum"].numpy()
        reply.content["sent"] = ArrayRecord({"sum": Array(np.full_like(like, 1 << 60))})
    return reply


def test_an_absurd_sum_is_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1], algorithm=SECURE, rounds=1)

    federation.of(1).mangle = nonsense
    with pytest.raises(NoAnswerError, match="a client sends nonsense"):
        federation.serve(participation=srpfl.Everyone())


def test_several_clients_of_one_node_are_members_of_their_own(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1], algorithm=SECURE, clients=4, users=2, rounds=2)
    federation.grid.nodes.clear()
    federation.join_several(200, [0, 1])
    federation.join_several(201, [2, 3])
    run = federation.serve(participation=srpfl.Everyone())
    assert [sorted(record.participants) for record in run.rounds] == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (srpfl.Doubling(start=1), "hides nothing"),
        (srpfl.Auto(start=2), "one round and all of its work"),
        (srpfl.Auto(start=2, margin=0), "secure sums do not show"),
        (srpfl.Deadline(seconds=1.0), "one round and all of its work"),
    ],
)
def test_what_masks_cannot_do_is_said_in_a_sentence(policy: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        tiny.simulate(rounds=30, algorithm=SECURE, participation=policy)


def test_fewer_than_twice_those_waited_for_are_asked() -> None:
    policy = srpfl.Doubling(start=2, every=1)
    run = tiny.simulate(rounds=3, algorithm=SECURE, participation=policy)
    assert [(len(r.participants), r.asked) for r in run.rounds] == [(2, 3), (4, 6), (6, 6)]


@pytest.mark.parametrize("average", ["secure", "secure:0.5,0.2"])
def test_slow_exchanges_are_waited_for_where_nobody_can_be_spared(
    tmp_path: Path, average: str
) -> None:
    """On a busy machine keys take longer than patience for them; with as many as a round needs,
    those who are slow are left behind."""
    algorithm = replace(SECURE, average=average)
    federation = Federation(tmp_path, [1, 1, 1, 1], algorithm=algorithm, rounds=2)

    def slow(seconds: float) -> Callable[[str], float]:
        return lambda kind: seconds if kind == "query.masks" else 1.0

    for client in range(3):
        federation.of(client).seconds = slow(100.0)  # patience for masks is 60
    federation.of(3).seconds = slow(1000.0)
    run = federation.serve(participation=srpfl.FirstN(n=3))
    assert [sorted(record.participants) for record in run.rounds] == [[0, 1, 2]] * 2
    assert run.rounds[0].duration < 400
