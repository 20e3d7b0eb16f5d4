"""Nothing bad gets in: a bad answer is refused, counted and named, and the round goes on."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

import srpfl
import tiny
from flower.federation import BASE, Federation, during

Change = Callable[[dict[str, Any], dict[str, np.ndarray]], None]


def mangled(change: Change) -> Callable[[Message], Message]:
    """A node that changes its training answers before it sends them."""

    def mangle(reply: Message) -> Message:
        if reply.metadata.message_type == "train":
            arrays = {n: a.numpy().copy() for n, a in reply.content["sent"].items()}
            change(reply.content["answer"], arrays)
            packed = {n: a if isinstance(a, Array) else Array(a) for n, a in arrays.items()}
            reply.content["sent"] = ArrayRecord(packed)
        return reply

    return mangle


def first_name(arrays: dict[str, Any]) -> str:
    return next(iter(arrays))


def not_a_number(answer: Any, arrays: Any) -> None:
    arrays[first_name(arrays)].flat[0] = np.nan


def infinite(answer: Any, arrays: Any) -> None:
    arrays[first_name(arrays)].flat[0] = np.inf


def loss_not_a_number(answer: Any, arrays: Any) -> None:
    answer["loss"] = float("nan")


def wrong_shape(answer: Any, arrays: Any) -> None:
    arrays[first_name(arrays)] = arrays[first_name(arrays)].T.copy()


def wrong_type(answer: Any, arrays: Any) -> None:
    arrays[first_name(arrays)] = arrays[first_name(arrays)].astype(np.float64)


def missing(answer: Any, arrays: Any) -> None:
    del arrays[first_name(arrays)]


def too_much(answer: Any, arrays: Any) -> None:
    arrays["backdoor"] = np.zeros(3, dtype=np.float32)


def absurd(answer: Any, arrays: Any) -> None:
    for value in arrays.values():
        value *= 1e4


def wrong_round(answer: Any, arrays: Any) -> None:
    answer["round"] = answer["round"] + 1


def another_client(answer: Any, arrays: Any) -> None:
    answer["client"] = 0


def no_samples(answer: Any, arrays: Any) -> None:
    answer["samples"] = 0


def pickled(answer: Any, arrays: Any) -> None:
    buffer = BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    like = arrays[first_name(arrays)]
    arrays[first_name(arrays)] = Array(
        str(like.dtype), like.shape, "numpy.ndarray", buffer.getvalue()
    )


def garbage(answer: Any, arrays: Any) -> None:
    like = arrays[first_name(arrays)]
    arrays[first_name(arrays)] = Array(str(like.dtype), like.shape, "numpy.ndarray", b"\x00" * 50)


def huge(answer: Any, arrays: Any) -> None:
    arrays[first_name(arrays)] = np.zeros(100_000, dtype=np.float32)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (not_a_number, "not finite"),
        (infinite, "not finite"),
        (loss_not_a_number, "its loss is nan"),
        (wrong_shape, "has the shape"),
        (wrong_type, "is of type <f8"),
        (missing, "lacks"),
        (too_much, "backdoor too much"),
        (absurd, "its norm is"),
        (wrong_round, "it is for round"),
        (another_client, "it is for client 0"),
        (no_samples, "claims 0 samples"),
        (pickled, "is of type |O"),
        (garbage, "cannot be read"),
        (huge, "larger than it should be"),
    ],
)
def test_a_bad_answer_is_refused_and_named_and_the_round_goes_on(
    tmp_path: Path, change: Change, why: str
) -> None:
    federation = Federation(tmp_path / "bad", [1, 1, 1], participation=srpfl.Everyone())
    federation.of(1).mangle = mangled(change)
    run = federation.serve(rounds=2)
    assert [record.participants for record in run.rounds] == [[0, 2]] * 2
    refused = federation.events("refused")
    assert [event["client"] for event in refused] == [1, 1]
    assert all(why in event["why"] for event in refused)
    assert not federation.kept(1).exists()
    # What is left is what there would be without that node.
    without = Federation(tmp_path / "without", [1, 1, 1], participation=srpfl.Everyone())
    del without.grid.nodes[BASE + 1]
    other = without.serve(rounds=2)
    assert run.state is not None
    assert other.state is not None
    assert tiny.same(run.state.shared, other.state.shared)


def test_a_bad_answer_makes_room_for_a_good_one(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 2, 3])
    federation.of(0).mangle = mangled(not_a_number)
    assert federation.serve(rounds=1).rounds[0].participants == [1, 2]


def test_an_absurd_answer_that_comes_first_is_refused_too(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 2, 3])
    federation.of(0).mangle = mangled(absurd)
    assert federation.serve(rounds=1).rounds[0].participants == [1, 2]


def test_how_absurd_is_absurd_can_be_set(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 2, 3], absurd=1e9)
    federation.of(0).mangle = mangled(absurd)
    assert federation.serve(rounds=1).rounds[0].participants == [0, 1]


def test_an_answer_from_a_node_that_was_not_asked_is_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 2, 9])

    def posing(reply: Message) -> Message:
        if reply.metadata.message_type == "train":
            reply.metadata.__dict__["_src_node_id"] = 4242
        return reply

    federation.of(0).mangle = posing
    run = federation.serve(rounds=1)
    assert run.rounds[0].participants == [1, 2]
    assert "node 4242 was not asked" in federation.events("refused")[0]["why"]


def emptied(reply: Message) -> Message:
    if reply.metadata.message_type == "train":
        reply.content = RecordDict()
    return reply


def test_an_answer_without_content_of_ours_is_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 2, 3])
    federation.of(0).mangle = emptied
    run = federation.serve(rounds=1)
    assert run.rounds[0].participants == [1, 2]


def test_a_round_that_nobody_answers_is_tried_again_and_then_fails(tmp_path: Path) -> None:
    from srpfl.loop.rounds import NoAnswerError

    federation = Federation(tmp_path, [1, 1, 1])
    for client in range(3):
        federation.of(client).mangle = mangled(not_a_number)
    with pytest.raises(NoAnswerError):
        federation.serve()
    assert len(federation.events("refused")) == 9


@pytest.mark.parametrize("average", ["mean", "secure"])
def test_who_spoils_each_round_for_which_it_is_drawn_does_not_end_the_run(
    tmp_path: Path, average: str
) -> None:
    """A round is drawn alike however often it is played: others than those who failed are asked."""
    few = 1 if average == "mean" else 2  # of whom there can be a secure sum
    algorithm = srpfl.FedRep(head_epochs=1, body_epochs=1, average=average)
    federation = Federation(tmp_path, [1] * 4, algorithm=algorithm, rounds=6)
    federation.of(0).mangle = emptied
    run = federation.serve(participation=srpfl.FirstN(n=few, sample=few, resample="stage"))
    other = Federation(tmp_path / "good", [1] * 4, algorithm=algorithm, rounds=6)
    drawn = other.serve(participation=srpfl.FirstN(n=few, sample=few, resample="stage"))
    assert all(0 not in record.participants for record in run.rounds)
    assert [len(record.participants) for record in run.rounds] == [few] * 6
    assert any(0 in record.participants for record in drawn.rounds)  # it would have been drawn


def test_who_fails_alone_is_not_asked_alone_again(tmp_path: Path) -> None:
    """The only other one that is idle leaves, and the rest are at work: they are waited for."""
    federation = Federation(tmp_path, [0.1, 1, 10, 10])
    federation.of(0).mangle = emptied
    during(lambda: setattr(federation.of(1), "online", False), 1.5, federation)
    run = federation.serve(participation=srpfl.FirstN(n=1), rounds=2)
    assert [record.participants for record in run.rounds] == [[1], [2]]
