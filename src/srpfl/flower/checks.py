"""Nothing bad gets in: an answer is held against what was asked before anything is done with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median_low
from typing import Any

import numpy as np
import torch
from flwr.app import Array, RecordDict

from srpfl.engine.base import Score
from srpfl.rounds import Answer, Request
from srpfl.split import Params

HEADER = 4096  # bytes that NumPy's format may add to an array's own


class Refused(Exception):
    """The answer cannot be used; the text says why."""


class GaveUp(Exception):
    """The client stopped by itself, because its time was up."""


def values_of(content: RecordDict, *, client: int, round: int) -> Mapping[str, Any]:
    """The numbers of an answer, if it is one to the question."""
    values = content.config_records.get("answer")
    if values is None:
        raise Refused("it holds no answer")
    if values.get("client") != client:
        raise Refused(f"it speaks for client {values.get('client')!r}")
    if values.get("round") != round:
        raise Refused(f"it is for round {values.get('round')!r} and not for {round}")
    if values.get("status") == "gave up":
        raise GaveUp
    return dict(values)


def read_answer(content: RecordDict, request: Request, *, client: int, time: float) -> Answer:
    """A training answer, if everything in it is as it should be."""
    values = values_of(content, client=client, round=request.round)
    loss, samples = values.get("loss"), values.get("samples")
    if not isinstance(loss, float) or not math.isfinite(loss):
        raise Refused(f"its loss is {loss}")
    if not isinstance(samples, int) or isinstance(samples, bool) or samples < 1:
        raise Refused(f"it claims {samples} samples")
    shared = read_arrays(content, "shared", request.shared)
    gradient = None
    if request.wants_gradient:
        floating = {n: v for n, v in request.shared.items() if v.is_floating_point()}
        gradient = read_arrays(content, "gradient", floating, all_names=False)
    return Answer(client, time, shared, loss, samples, gradient)


def read_scores(content: RecordDict, kinds: tuple[str, ...], *, client: int, round: int) -> Any:
    """Test results by kind of evaluation."""
    values = values_of(content, client=client, round=round)
    scores = {}
    for kind in kinds:
        correct, total = values.get(f"{kind}/correct"), values.get(f"{kind}/total")
        if not (type(correct) is int and type(total) is int and 0 <= correct <= total):
            raise Refused(f"it claims {correct} right of {total}")
        scores[kind] = Score(client, correct, total)
    return scores


def read_arrays(content: RecordDict, part: str, like: Params, *, all_names: bool = True) -> Params:
    """Tensors with the names, shapes and types of ``like``, all finite."""
    record = content.array_records.get(part)
    if record is None:
        raise Refused(f"it has no {part} part")
    missing = like.keys() - record.keys() if all_names else set()
    strange = record.keys() - like.keys()
    if missing or strange:
        what = f"lacks {min(missing)}" if missing else f"has {min(strange)} too much"
        raise Refused(f"its {part} part {what}")
    return {name: _tensor(array, like[name], name) for name, array in record.items()}


def _tensor(array: Array, like: torch.Tensor, name: str) -> torch.Tensor:
    # The size is looked at first: the header could promise an array that fills the memory.
    if len(array.data) > like.numel() * like.element_size() + HEADER:
        raise Refused(f"{name} is larger than it should be")
    try:
        values = array.numpy()
    except (ValueError, TypeError, OSError, EOFError, SyntaxError) as error:
        raise Refused(f"{name} cannot be read ({error})") from None
    wanted = np.dtype(str(like.dtype).removeprefix("torch."))
    if values.dtype != wanted:
        raise Refused(f"{name} is of type {values.dtype} and not {wanted}")
    if values.shape != tuple(like.shape):
        raise Refused(f"{name} has the shape {values.shape} and not {tuple(like.shape)}")
    if not np.isfinite(values).all():
        raise Refused(f"{name} has values that are not finite")
    return torch.from_numpy(values.copy())


def absurd(shared: Mapping[int, Params], sent: Params, factor: float) -> dict[int, str]:
    """The clients whose answer's norm is too far above the round's median, and why.

    What was sent counts as one more answer, so that the first one has something to be held
    against; of two values in the middle the lower one is the median, for the same reason.
    """
    norms = {client: norm(params) for client, params in shared.items()}
    usual = median_low([norm(sent), *norms.values()])
    return {
        client: f"its norm is {value:.3g} where {usual:.3g} is usual"
        for client, value in norms.items()
        if usual > 0 and value > factor * usual
    }


def norm(params: Params) -> float:
    """Over all floating-point tensors, in double precision: no overflow hides in it."""
    squares = (float(v.double().square().sum()) for v in params.values() if v.is_floating_point())
    return math.sqrt(math.fsum(squares))
