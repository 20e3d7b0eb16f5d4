"""Flower's nodes under masks: the server learns the sum of a round's answers and nothing else.

A round has three more letters than usual: before the work members exchange keys and sealed shares
by way of the server, after it those who count reveal the shares with which masks come off. Who is
late is a drop-out, as in any round. See srpfl.privacy.secure for the protocol.

What cannot be read cannot be checked: a member that sends nonsense spoils the sum. An absurd sum is
refused, and the round is played again; who spoilt it is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from srpfl.algorithms.summed import FEWEST, SUM, Secure
from srpfl.flower.checks import Refused, norm, read_arrays, values_of
from srpfl.flower.parcels import Reply
from srpfl.flower.transport import FlowerTransport
from srpfl.flower.wire import MASKS
from srpfl.loop.rounds import Arrival, NoAnswerError, Request
from srpfl.participation.base import Answer
from srpfl.privacy.secure import SHARE, Keys, SecureSumError, threshold_of, unmasked, well_formed


@dataclass
class Group:
    """The members of one round: their keys, and for each the letters of the others."""

    threshold: int = 0
    fewest: int = 0  # answers that must count
    keys: dict[int, Keys] = field(default_factory=dict)
    letters: dict[int, dict[int, bytes]] = field(default_factory=dict)


class MaskedTransport(FlowerTransport):
    """The way to clients whose answers only their sum can be read of."""

    def __init__(self, *given: Any, hides: Secure, **named: Any) -> None:
        super().__init__(*given, **named)
        self._hides, self._group = hides, Group()

    def send(self, request: Request) -> Iterator[Arrival]:
        self.desk.round = request.round
        self._tried.update(request.asked)
        self._group = self._agreed(request)
        members = tuple(c for c in request.asked if c in self._group.letters)
        yield from super().send(replace(request, asked=members))

    def _agreed(self, request: Request) -> Group:
        """Keys and shares, of all who were asked and answer in time."""
        round = request.round
        need = min(request.call.wait, len(request.asked))
        said = self._ask({client: {"stage": "keys"} for client in request.asked}, round, need)
        keys = {c: Keys(values["letters"], values["masks"]) for c, values in said.items()}
        self._check(len(keys), FEWEST)
        threshold = threshold_of(len(keys))
        fewest = self._hides.fewest(min(request.call.wait, len(keys)), threshold)
        group = Group(threshold, fewest, keys)
        all_keys = {
            "stage": "shares",
            "threshold": threshold,
            "fewest": fewest,
            "names": list(keys),
            "letters": [each.letters for each in keys.values()],
            "masks": [each.masks for each in keys.values()],
        }
        shared = self._ask(dict.fromkeys(keys, all_keys), round, fewest)
        self._check(len(shared), fewest)
        group.keys = {client: keys[client] for client in shared}
        for client in shared:
            group.letters[client] = {
                other: values["shares"][values["names"].index(client)]
                for other, values in shared.items()
                if other != client
            }
        return group

    @staticmethod
    def _check(members: int, need: int) -> None:
        if members < need:
            raise NoAnswerError(f"{members} of {need} clients needed agreed on masks in time")

    def _beside(self, request: Request) -> Mapping[int, dict[str, Any]]:
        return {
            client: {"names": list(letters), "shares": list(letters.values())}
            for client, letters in self._group.letters.items()
        }

    def _read(self, client: int, reply: Reply, request: Request, time: float) -> Answer:
        values_of(reply.content, client=client, round=request.round)
        found = read_arrays(reply.content, self._replies)
        return Answer(client, time, {}, 0.0, 1, {SUM: found})

    def collect(self, request: Request, counted: Sequence[Arrival]) -> list[Answer]:
        group, names = self._group, [arrival.client for arrival in counted]
        if len(names) < group.fewest:
            raise NoAnswerError(f"{len(names)} of {group.fewest} answers needed came")
        self.events.note("revealed", f"a sum of {len(names)}", round=request.round)
        told = {"stage": "reveal", "counted": names}
        answers = {name: self._answers[name].sent[SUM][SUM] for name in names}
        least = group.threshold
        revealed = self._ask(dict.fromkeys(names, told), request.round, least, all_of_them=False)
        shares = [dict(zip(v["names"], v["shares"], strict=True)) for v in revealed.values()]
        masked = {name: value.numpy().view(np.uint64) for name, value in answers.items()}
        try:
            found = unmasked(masked, group.keys, shares, group.threshold)
        except SecureSumError as error:
            self.events.note("not unmasked", str(error), round=request.round)
            raise NoAnswerError(f"the secure sum of round {request.round + 1}: {error}") from None
        total = torch.from_numpy(found.view(np.int64))
        self._refuse_absurd(request, total, len(names))
        parts, loss = self._hides.summed(request.shared, total, len(names))
        return [
            Answer(arrival.client, arrival.time, part, loss, 1)
            for arrival, part in zip(counted, parts, strict=True)
        ]

    def _refuse_absurd(self, request: Request, total: torch.Tensor, count: int) -> None:
        usual = norm(request.shared)
        after = norm(self._hides.moved(request.shared, total[:-1], count))
        if usual > 0 and after > self.experiment.absurd * usual:
            why = f"the norm after the secure sum is {after:.3g}, before it {usual:.3g}"
            self.events.note("not unmasked", why, round=request.round)
            raise NoAnswerError(f"{why}: a client sends nonsense")

    def _ask(
        self,
        letters: Mapping[int, dict[str, Any]],
        round: int,
        need: int,
        *,
        all_of_them: bool = True,
    ) -> dict[int, dict[str, Any]]:
        """Letters about masks, and what came back. Those who are slow are waited for as long as
        patience for masks says, or not at all; without as many as are needed there is no sum, and
        they are waited for as in any round."""
        desk, found = self.desk, dict[int, dict[str, Any]]()
        began = desk.now()
        desk.gone()
        batch, waiting = desk.post(MASKS, sorted(letters), round, None, beside=letters)
        while True:
            for client, reply in desk.listen({batch}):
                waiting.discard(client)
                try:
                    found[client] = read_masks(reply, letters[client], client=client, round=round)
                except Refused as error:
                    self.events.note("refused", str(error), client=client, round=round)
            waiting -= desk.gone()
            patience = self.patience.round
            if len(found) >= need:
                patience = self.patience.masks if all_of_them else 0.0
            if not waiting or desk.now() - began >= patience:
                return found
            desk.pause()


def read_masks(
    reply: Reply, asked: Mapping[str, Any], *, client: int, round: int
) -> dict[str, Any]:
    """What a member said about masks, if it is an answer to what it was asked."""
    if reply.error or reply.malformed:
        raise Refused(reply.error or reply.malformed)
    values = dict(values_of(reply.content, client=client, round=round))
    if asked["stage"] == "keys":
        pair = (values.get("letters"), values.get("masks"))
        if not all(type(key) is bytes and len(key) < 100 for key in pair):
            raise Refused("it has no keys for a secure sum")
        if not well_formed(Keys(*pair)):  # type: ignore[arg-type]
            raise Refused("its keys for a secure sum are none")
        return values
    names, shares = values.get("names"), values.get("shares")
    if not isinstance(names, list) or not isinstance(shares, list) or len(names) != len(shares):
        raise Refused("its shares for a secure sum cannot be read")
    longest = SHARE if asked["stage"] == "reveal" else 1000
    if any(type(share) is not bytes or len(share) > longest for share in shares):
        raise Refused("its shares for a secure sum are none")
    if any(type(name) is not int for name in names) or len(set(names)) < len(names):
        raise Refused("it is not clear of whom its shares are")
    if asked["stage"] == "shares" and set(names) != set(asked["names"]) - {client}:
        raise Refused("it did not write to all other members of the secure sum")
    return values
