"""What travels: numbers, texts and arrays in Flower's records. Nothing is ever pickled."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from srpfl.core.pieces import Travels, cut, filled
from srpfl.core.slots import Slots, unpacked
from srpfl.core.split import Params

HELLO, TRAIN, EVALUATE, SETTLE = "query.hello", "train", "evaluate", "query.settle"
DOING, MASKS, REFUSED = "query.doing", "query.masks", "query.refused"
PROTOCOL = 2  # of these records: both sides must speak the same
VERSION = version("srpfl")


@dataclass(frozen=True)
class Assignment:
    """What the server asks of one client, beside the shared part."""

    experiment: str
    run: str = ""  # the identity of the run: of two with one name, a node serves one
    client: int = 0  # its number, by which its random streams go
    name: str = ""  # what the node calls it
    round: int = 0  # rounds finished before this one
    seed: int = 0
    budget: float = 0.0  # seconds after which an answer is useless
    counted: int = 0  # the last round (from 1) in which this client's answer counted; 0: none
    inherit: bool = False  # go on with the personal parts of another run of that name
    wants_gradient: bool = False
    part: float = 1.0  # of the local work that it is to do
    within: float = 0.0  # seconds after which it sends what it has; 0: it does all of its work
    kinds: str = ""  # evaluations, separated by commas


def pack(params: Params) -> ArrayRecord:
    """Tensors as a record of arrays."""
    return ArrayRecord(
        {name: Array(value.detach().cpu().numpy()) for name, value in params.items()}
    )


def assignment_record(
    assignment: Assignment,
    sent: ArrayRecord | None = None,
    masks: Mapping[str, Any] | None = None,
) -> RecordDict:
    """A letter: what is asked, the shared part, and what a secure sum needs."""
    content: dict[str, Any] = {"assignment": ConfigRecord({**asdict(assignment), **_once()})}
    if masks is not None:
        content["masks"] = ConfigRecord({**masks, **_once()})
    return RecordDict(content if sent is None else {**content, "sent": sent})


def refusal_record(why: str) -> RecordDict:
    """A letter to a node that cannot take part."""
    return RecordDict({"refusal": ConfigRecord({"why": why, **_once()})})


def _once() -> dict[str, str]:
    """Flower names an object by its content, and fails where somebody else has announced that name
    as something else: nobody can know this one beforehand."""
    return {"once": secrets.token_hex(16)}


def read_assignment(content: RecordDict) -> Assignment:
    given = content.config_records["assignment"]
    known = {field.name for field in fields(Assignment)}  # a newer server may say more
    return Assignment(**{name: value for name, value in given.items() if name in known})  # type: ignore[arg-type]


def read_sent(
    content: RecordDict, like: Params, travels: Callable[[Params, Slots], Travels]
) -> tuple[Params, Slots]:
    """The shared part that the server sent, or the client's pieces of it with zeros around them,
    and its slots, held against the client's own model."""
    arrays = content.array_records["sent"]
    shared, slots = unpacked(like)
    found = {n: torch.from_numpy(array.numpy().copy()) for n, array in arrays.items()}
    if arrays.keys() == like.keys():
        pieces, server = unpacked(found)
        down = travels(shared, server).down if _fits(server, slots) else {}
        if _fits({"": pieces}, {"": cut(shared, down)}) and _fits(server, slots):
            return filled(pieces, down, {n: torch.zeros_like(v) for n, v in shared.items()}), server
    raise ValueError("the server's shared part does not fit this client's model")


def _fits(one: Slots, other: Slots) -> bool:
    forms = [
        {(s, n): v.shape for s, part in each.items() for n, v in part.items()}
        for each in (one, other)
    ]
    return forms[0] == forms[1]


def answer_record(values: dict[str, Any], sent: Params | None = None) -> RecordDict:
    """An answer: some numbers and texts, and the shared part with what else is sent, packed."""
    records: dict[str, Any] = {"answer": ConfigRecord(values)}
    return RecordDict(records if sent is None else {**records, "sent": pack(sent)})


def fingerprint(*parts: Params) -> str:
    """The names, shapes and types of what travels, in short: both sides must have the same.

    >>> import torch
    >>> fingerprint({"w": torch.zeros(2)}) == fingerprint({"w": torch.ones(2)})
    True
    >>> fingerprint({"w": torch.zeros(2)}) == fingerprint({"w": torch.zeros(3)})
    False
    """
    forms = [[(n, str(v.dtype), list(v.shape)) for n, v in sorted(p.items())] for p in parts]
    return hashlib.sha256(repr(forms).encode()).hexdigest()[:16]
