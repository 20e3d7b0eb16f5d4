"""Nothing bad gets in: an answer is held against what was asked before anything is done with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from flwr.app import RecordDict

from srpfl.core.slots import unpacked
from srpfl.core.split import Params
from srpfl.engine.base import Score
from srpfl.errors import shown
from srpfl.flower.npy import Unreadable, tensor
from srpfl.flower.texts import harmless
from srpfl.flower.wire import PROTOCOL, VERSION
from srpfl.loop.rounds import EXPLODED, Request
from srpfl.participation.base import Answer
from srpfl.task import Task

NAME = 100  # characters of a client's name
MANY = 10_000  # clients of one node
MOST = 1 << 40  # samples of one client
LEAST = 0.001  # of its local work that a client may have done


class Refused(Exception):
    """The answer cannot be used; the text says why."""


class GaveUp(Exception):
    """The client stopped by itself, because its time was up."""


@dataclass(frozen=True)
class Sizes:
    """How many samples a client has, as it said when it joined."""

    train: int
    test: int


@dataclass(frozen=True)
class Introduction:
    """What a node says of itself: its clients by name, and the version of srpfl that it has."""

    clients: dict[str, Sizes]
    version: str


def read_introduction(content: RecordDict | None, model: str) -> Introduction:
    """Who a node is, if it can take part: ``model`` is the fingerprint of what travels."""
    values = _values(content)
    if isinstance(said := values.get("refusal"), str) and said:
        raise Refused(f"it says: {harmless(said)}")
    names = values.get("names")
    if not isinstance(names, list) or not 0 < len(names) <= MANY:
        raise Refused("it does not say who it is")
    version = harmless(values.get("version", "an older version"), 40)
    both = f"srpfl {version} there, {VERSION} on the server"
    if values.get("protocol") != PROTOCOL:
        raise Refused(f"it speaks another protocol ({both}): install the server's version")
    if values.get("model") != model:
        if str(values.get("model")).split("/")[0] == model.split("/")[0]:
            raise Refused(
                "its frozen weights are not the server's: load the same pretrained model there"
            )
        raise Refused(
            f"it has another model or algorithm than the server ({both}): what travels must have "
            "the same names, shapes and types on both sides"
        )
    if any(type(name) is not str or not 0 < len(name) <= NAME for name in names):
        raise Refused(f"a name of a client must be a text of 1 to {NAME} characters")
    if len(set(names)) < len(names):
        raise Refused("it names a client twice")
    train, test = values.get("train"), values.get("test")
    for counts in (train, test):
        if not isinstance(counts, list) or len(counts) != len(names):
            raise Refused("it does not say how many samples its clients have")
        if any(type(count) is not int or not 0 <= count <= MOST for count in counts):
            raise Refused(f"it claims {shown(counts)} samples")
    pairs = map(Sizes, train, test)  # type: ignore[arg-type]
    return Introduction(dict(zip(names, pairs, strict=True)), version)


def values_of(content: RecordDict | None, *, client: int, round: int) -> Mapping[str, Any]:
    """The numbers of an answer, if it is one to the question."""
    values = _values(content)
    for name, wanted in (("client", client), ("round", round)):
        said = values.get(name)
        if type(said) is not int or said != wanted:
            raise Refused(f"it is for {name} {shown(said)} and not for {wanted}")
    if values.get("status") == "gave up":
        raise GaveUp
    return values


def _values(content: RecordDict | None) -> dict[str, Any]:
    found = None if content is None else content.config_records.get("answer")
    if found is None:
        raise Refused("it holds no answer")
    return dict(found)


def read_answer(
    content: RecordDict | None,
    request: Request,
    like: Params,
    *,
    client: int,
    time: float,
    most: int = MOST,
) -> Answer:
    """A training answer, if everything in it is as it should be: ``like`` is what it holds, and
    ``most`` the samples that the client has."""
    values = values_of(content, client=client, round=request.round)
    loss, samples = values.get("loss"), values.get("samples")
    if type(loss) is not float or not abs(loss) <= EXPLODED:
        raise Refused(f"its loss is {shown(loss)}")
    if type(samples) is not int or not 1 <= samples <= most:
        raise Refused(f"it claims {shown(samples)} samples")
    part = values.get("part", 1.0)  # an older node does not say it, and does all of its work
    if type(part) is not float or not LEAST <= part <= 1:
        raise Refused(f"it claims to have done {shown(part)} of its work")
    shared, sent = unpacked(read_arrays(content, like))
    return Answer(client, time, shared, loss, samples, sent, part=part)


def read_scores(
    content: RecordDict | None,
    kinds: tuple[str, ...],
    task: Task,
    *,
    client: int,
    round: int,
    most: float = math.inf,
) -> dict[str, Score]:
    """Test results by kind of evaluation; ``most`` is the weight that the client can have."""
    values = values_of(content, client=client, round=round)
    scores = {}
    for kind in kinds:
        sums, weight = values.get(f"{kind}/sums"), values.get(f"{kind}/weight")
        numbers: list[Any] = sums if isinstance(sums, list) and len(sums) <= 1000 else []
        if not numbers or any(type(number) is not float for number in (weight, *numbers)):
            raise Refused("its scores are not numbers")
        assert isinstance(weight, float)
        if not weight <= most:
            raise Refused(f"it claims {weight:g} test samples, and joined with {most:g}")
        if any(not abs(number) <= EXPLODED for number in numbers):
            raise Refused(f"it claims scores of {shown(numbers)}")
        if not task.possible(numbers, weight) or (weight and not _has_value(task, numbers, weight)):
            raise Refused(f"it claims scores of {shown(numbers)} over {weight:g} samples")
        scores[kind] = Score(client, tuple(numbers), weight)
    return scores


def _has_value(task: Task, numbers: list[float], weight: float) -> bool:
    try:
        return math.isfinite(task.value(numbers, weight))
    except (ArithmeticError, ValueError, LookupError):
        return False


def read_arrays(content: RecordDict | None, like: Params) -> Params:
    """Tensors with the names, shapes and types of ``like``, all finite."""
    record = None if content is None else content.array_records.get("sent")
    if record is None:
        raise Refused("it has no shared part")
    missing, strange = like.keys() - record.keys(), record.keys() - like.keys()
    if missing or strange:
        lacks, has = min(missing, default=""), harmless(min(strange, default=""), 60)
        raise Refused(f"its shared part {f'lacks {lacks}' if missing else f'has {has} too much'}")
    found = {}
    for name, array in record.items():
        if array.stype != "numpy.ndarray":
            raise Refused(f"{name} is written in the way '{harmless(array.stype, 40)}'")
        try:
            found[name] = tensor(array.data, like[name])
        except Unreadable as error:
            raise Refused(f"{name} {error}") from None
    return found


def absurd(norms: Mapping[int, float], sent: float, factor: float) -> dict[int, str]:
    """The clients whose answer's norm is too far above the round's median, and why.

    What was sent counts as one more answer, so that the first one has something to be held
    against; of two values in the middle the lower one is the median, for the same reason.
    """
    usual = median_low([sent, *norms.values()])
    return {
        client: f"its norm is {value:.3g} where {usual:.3g} is usual"
        for client, value in norms.items()
        if usual > 0 and value > factor * usual
    }


def norm(params: Params) -> float:
    """Over all floating-point tensors, in double precision: no overflow hides in it."""
    squares = (float(v.double().square().sum()) for v in params.values() if v.is_floating_point())
    return math.sqrt(math.fsum(squares))
