"""A node's part in a secure sum: keys, sealed shares, a masked answer, and shares once more.

What a member must remember from one letter to the next is kept in Flower's context, in the node's
memory: a node that is restarted on the way is one that dropped out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, RecordDict

from srpfl.algorithms.summed import SUM
from srpfl.core.split import Params
from srpfl.flower.wire import Assignment
from srpfl.privacy.secure import Keys, Member, SecureSumError

RECORD = "masks"  # of a letter


def answered(content: RecordDict, context: Context, assignment: Assignment) -> dict[str, Any]:
    """What a member says to a letter that is only about masks."""
    given: Any = dict(content.config_records[RECORD])
    if given["stage"] == "keys":
        member = Member(assignment.client)
        keys = member.introduce()
        said: dict[str, Any] = {"letters": keys.letters, "masks": keys.masks}
    else:
        member = _remembered(context, assignment)
        if given["stage"] == "shares":
            pairs = map(Keys, given["letters"], given["masks"])
            keys_of = dict(zip(given["names"], pairs, strict=True))
            told = member.share(keys_of, given["threshold"], given.get("fewest", 0))
        else:
            told = member.reveal(given["counted"])
        said = {"names": list(told), "shares": list(told.values())}
    _remember(context, assignment, member)
    return said


def masked(
    content: RecordDict,
    context: Context,
    assignment: Assignment,
    vector: Callable[[int], torch.Tensor],
) -> Params:
    """The answer as it is sent: nobody but all members together can read it. ``vector`` is what
    the client adds to the sum of so many answers at least."""
    if RECORD not in content.config_records:
        raise SecureSumError("this client sends masked answers only, and was asked for a plain one")
    given: Any = content.config_records[RECORD]
    member = _remembered(context, assignment)
    member.receive(dict(zip(given["names"], given["shares"], strict=True)))
    found = member.mask(vector(member.fewest).cpu().numpy().view(np.uint64))
    _remember(context, assignment, member)
    return {SUM: torch.from_numpy(found.view(np.int64))}


def _remember(context: Context, assignment: Assignment, member: Member) -> None:
    context.state[_name(assignment)] = ConfigRecord(
        {"run": assignment.run, "round": assignment.round, "member": member.dump()}
    )


def _remembered(context: Context, assignment: Assignment) -> Member:
    kept = context.state.config_records.get(_name(assignment), ConfigRecord())
    if (kept.get("run"), kept.get("round")) != (assignment.run, assignment.round):
        raise SecureSumError("this client knows of no secure sum of this round: it was restarted")
    return Member.load(kept["member"])  # type: ignore[arg-type]


def _name(assignment: Assignment) -> str:
    return f"{RECORD}-{assignment.client}"
