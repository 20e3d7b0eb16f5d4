"""What an algorithm is: a split of the model, plans of local work, and an update of the server.

Nothing here knows of stragglers, clocks or engines. A new algorithm states what is personal and
what a participant trains; FedRep's file shows how little that is, SCAFFOLD's how the slots of
server and clients come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import nn

from srpfl.algorithms.averages import Average, Mean, averages
from srpfl.algorithms.private import Private
from srpfl.algorithms.sealed import opened
from srpfl.algorithms.summed import SUM, Secure
from srpfl.core.fields import check_fields
from srpfl.core.means import Weighting, weights_by
from srpfl.core.pieces import Travels
from srpfl.core.plan import Phase, Plan
from srpfl.core.rules import SGD, Rule, with_momentum
from srpfl.core.slots import Given, Reply, Slots, Trained, about, packed
from srpfl.core.split import (
    Params,
    Personal,
    Predicate,
    Split,
    check_ties,
    last_linear,
    nothing,
    predicate,
    split,
    trainable,
)
from srpfl.core.wire import wire_of
from srpfl.errors import ConfigError

Evaluation = Literal["personalised", "global", "local"]
HEARD = "heard"  # how many answers the server has had, and what they weighed
TOLD_IF_CHANGED = {"told": "if changed"}  # in run folders, which may be older than a field


class Answered(Protocol):
    """What the server's update sees of an answer."""

    @property
    def client(self) -> int: ...
    @property
    def shared(self) -> Params: ...
    @property
    def sent(self) -> Slots: ...
    @property
    def samples(self) -> int: ...
    @property
    def age(self) -> int: ...  # how many rounds ago it began
    @property
    def credit(self) -> float: ...  # how much it counts, if it is a client's own model


class Portion(NamedTuple):
    """How much of a round's work and messages a client has: 1 is all of it."""

    work: float = 1.0  # what its steps cost, beside those of the whole model
    down: float = 1.0
    up: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """The part that algorithms have in common."""

    rule: Rule = SGD()
    batch_size: int = 10
    weighting: Weighting = "uniform"
    tuning_epochs: int = 10  # evaluation trains the personal part for that long
    # Or "median", "trimmed:0.1", "krum:2", "geometric-median", "clipped:1.0", "private:1.0,0.8",
    # "secure": see `averages`.
    average: str | Average = field(default="mean", metadata=TOLD_IF_CHANGED)

    # How answers travel: "full", "int8", or "top:0.05" for the largest twentieth of what changed.
    wire: str = field(default="full", metadata=TOLD_IF_CHANGED)

    headline: ClassVar[Evaluation] = "personalised"
    personalises: ClassVar[bool] = True  # needs a shared and a personal part, both non-empty
    wants_gradient: ClassVar[bool] = False  # of each client's loss at what it was sent
    needs_classes: ClassVar[bool] = False  # one label per sample, from a number of classes
    corrects: ClassVar[bool] = False  # takes out of answers what sets their clients apart
    moves: ClassVar[bool] = True  # answers are what was sent, moved; else clients' own models

    def __post_init__(self) -> None:
        check_fields(self)
        if self.weighting not in ("uniform", "samples"):
            raise ConfigError(f"weighting must be 'uniform' or 'samples', not '{self.weighting}'")
        wire_of(self.wire)
        if self.hides is not None and self.weighting == "samples":
            raise ConfigError(
                "what hides single answers weighs all of them alike: use weighting='uniform'"
            )
        if isinstance(self.hides, Secure) and self.wire != "full":
            raise ConfigError("the sum of masked answers must be one of whole answers: wire='full'")

    def prepared(self, model: nn.Module) -> nn.Module:
        """The model as the algorithm needs it: the user's, or one around it."""
        return model

    def is_personal(self, model: nn.Module) -> Predicate:
        """Which names stay with the client."""
        raise NotImplementedError

    def phases(self, shared: frozenset[str], personal: frozenset[str]) -> tuple[Phase, ...]:
        """What a participant trains, given the names of the two parts' parameters."""
        raise NotImplementedError

    def adapts(self, model: nn.Module) -> Predicate:
        """Which names evaluation trains for each client: the personal part."""
        return self.is_personal(model)

    def split(self, model: nn.Module) -> Split:
        """The model's three parts."""
        parts = split(model, self.is_personal(model))
        mine = parts.trainable & parts.personal.keys()
        # Beside fixed weights everything may be personal: then each client trains alone.
        everything = mine == parts.trainable and not parts.fixed
        if self.personalises and (not mine or everything):
            what = "everything" if mine else "nothing"
            raise ConfigError(
                f"the split makes {what} personal, but {type(self).__name__} needs a shared and a "
                "personal part: name the personal part, for example personal=['fc3']"
            )
        return parts

    def plans(self, model: nn.Module) -> tuple[Plan, ...]:
        """The local work of a participant, in order. A plan trains the model, or a slot in its
        place."""
        parts = self.split(model)
        personal = parts.trainable & parts.personal.keys()
        phases = self.phases(parts.trainable - personal, personal)
        return (Plan(phases, self.rule, self.batch_size),)

    def server_state(self, parts: Split) -> Slots:
        """What the server remembers beside the shared part, before the first round."""
        return {}

    def client_state(self, parts: Split) -> Slots:
        """What each client remembers beside its personal part, before it first takes part."""
        return {}

    def sends(self, server: Slots) -> Slots:
        """The server's slots that clients get with the shared part."""
        return {}

    def finish(self, given: Given, trained: Trained) -> Reply:
        """What one client sends and keeps after its local work. Tensor operations only: an engine
        may carry it out for many clients as one."""
        return Reply(trained.shared, trained.personal, trained.own)

    def update(
        self, sent: Params, server: Slots, answers: Sequence[Answered], population: int
    ) -> tuple[Params, Slots]:
        """The next shared part, and the server's slots."""
        return self.mean(sent, answers), server

    def mean(
        self, sent: Params, answers: Sequence[Answered], names: Iterable[str] | None = None
    ) -> Params:
        """The answers' average, of the kind and with the weights that were asked for: of the whole
        shared part, or of some of it."""
        average, parts = averages(self.average), opened(answers)
        if not self.moves:
            parts = [
                stepped(sent, part, answer.credit)
                for part, answer in zip(parts, answers, strict=True)
            ]
        if names is not None:
            sent, *parts = ({name: part[name] for name in names} for part in (sent, *parts))
        return average(sent, parts, self.weights(answers))

    def mean_beside(self, parts: Sequence[Params], weights: Sequence[float]) -> Params:
        """The average, of the kind that was asked for, of what clients send beside their weights:
        one bad answer must not come in by that way."""
        nothing = {name: torch.zeros_like(value) for name, value in parts[0].items()}
        return averages(self.average)(nothing, parts, weights)

    @property
    def takes_mean(self) -> bool:
        """Whether the server makes nothing of the clients' weights but their plain mean: then
        means of some of them do as well."""
        own = (type(self).update, type(self).mean, type(self).weights)
        plain = own == (Algorithm.update, Algorithm.mean, Algorithm.weights)
        return plain and self.wire == "full" and type(averages(self.average)) is Mean

    @property
    def hides(self) -> Private | Secure | None:
        """The noise or the masks that hide single clients, if there are any."""
        average = averages(self.average)
        return average if isinstance(average, Private | Secure) else None

    def weights(self, answers: Sequence[Answered]) -> list[float]:
        """How much each answer counts."""
        return weights_by(self.weighting, [answer.samples for answer in answers])

    def heard(self, server: Slots, answers: Sequence[Answered]) -> tuple[float, float, Slots]:
        """For sums over all clients that change by what some of them send: the weight of these
        answers, the mean weight of an answer so far, and the server's slots, which count for that.
        A client has to weigh the same each time, or what it sent before stays in the sum."""
        total = sum(self.weights(answers))
        if HEARD not in server:
            return total, 1.0, {}
        then = server[HEARD]
        now = {"weight": then["weight"] + total, "answers": then["answers"] + len(answers)}
        return total, self.weighed({HEARD: now}), {HEARD: now}

    def weighed(self, server: Slots) -> float:
        """The mean weight of an answer so far."""
        heard = server.get(HEARD)
        return float(heard["weight"] / heard["answers"]) if heard and heard["answers"] else 1.0

    def hears(self) -> Slots:
        """The slots for that before the first round: none where all weigh alike."""
        zeros = {name: torch.zeros((), dtype=torch.float64) for name in ("weight", "answers")}
        return {HEARD: zeros} if self.weighting == "samples" else {}

    def portion(self, shared: Params, server: Slots, client: int) -> Portion:
        """For the clock: what part of the work and of the messages a client has in this round,
        given what is sent."""
        return Portion()

    def travels(self, shared: Params, server: Slots, client: int) -> Travels:
        """For real clients: which numbers of the shared part a client gets and sends back. What it
        does not get is zero for it; what it does not send stays as it got it."""
        return Travels()

    def own(self, shared: Params, personal: Params, slots: Mapping[str, Params]) -> Params:
        """What makes a client's own model of the shared part: "local" evaluation tests it. The
        slots are those that it was sent and those that it keeps."""
        return personal

    def tuning(self, model: nn.Module) -> Plan:
        """What evaluation does for each client before it tests."""
        adapts = self.adapts(model)
        check_ties(model, adapts)
        names = frozenset(filter(adapts, trainable(model)))
        return Plan((Phase(names, epochs=self.tuning_epochs),), self.tuning_rule, self.batch_size)

    @property
    def tuning_rule(self) -> Rule:
        """Fine-tuning uses momentum with every method."""
        return with_momentum(self.rule, 0.5)

    def adaptation(self, model: nn.Module) -> Plan:
        """What a client does to the shared model before the "global" evaluation tests it."""
        return Plan((), self.rule, self.batch_size)


def expected_reply(algorithm: Algorithm, parts: Split) -> Params:
    """What an answer holds, packed: tried out with what a run begins with."""
    given = Given(
        parts.shared,
        parts.personal,
        algorithm.sends(algorithm.server_state(parts)),
        client_state_of(algorithm, parts),
        about(0, 1, 0),
    )
    steps = torch.ones((), dtype=torch.float32)
    gradient = parts.trained if algorithm.wants_gradient else {}
    trained = Trained(given.shared, given.personal, given.own, steps, gradient)
    reply = Wired(algorithm).finish(given, trained)
    if not isinstance(algorithm.hides, Secure):
        return packed(reply.shared, reply.sent)
    if reply.sent:
        raise ConfigError(
            f"{type(algorithm).__name__} sends more than its weights, and secure sums hide only "
            "those: use an algorithm such as FedAvg or FedRep"
        )
    return {SUM: Secure().vector(parts.shared, parts.shared, 0.0, 1)}


@dataclass(frozen=True)
class Wired:
    """An algorithm whose clients send their answers in the way that its wire says."""

    algorithm: Algorithm

    def finish(self, given: Given, trained: Trained) -> Reply:
        reply, wire = self.algorithm.finish(given, trained), wire_of(self.algorithm.wire)
        moves = self.algorithm.moves
        return reply if wire is None else wire.close(reply, given, moves=moves)


def client_state_of(algorithm: Algorithm, parts: Split) -> Slots:
    """All slots that a client begins with: the algorithm's, and what its wire has to remember."""
    wire = wire_of(algorithm.wire)
    return {**algorithm.client_state(parts), **({} if wire is None else wire.keeps(parts.shared))}


def with_secrets(algorithm: Algorithm) -> Algorithm:
    """The algorithm as real clients may trust it."""
    hides = algorithm.hides
    return algorithm if hides is None else replace(algorithm, average=hides.secret())


def stepped(sent: Params, mean: Params, rate: float) -> Params:
    """x + rate·(mean − x); what is counted is averaged."""
    if rate == 1:
        return mean
    return {
        name: old + rate * (mean[name] - old) if old.is_floating_point() else mean[name]
        for name, old in sent.items()
    }


@dataclass(frozen=True, kw_only=True)
class SharesAll(Algorithm):
    """Algorithms that share the whole model; fine-tuning adapts its last linear layer."""

    personalises: ClassVar[bool] = False

    def is_personal(self, model: nn.Module) -> Predicate:
        return nothing

    def adapts(self, model: nn.Module) -> Predicate:
        return predicate(model, last_linear(model))


@dataclass(frozen=True, kw_only=True)
class PersonalHead(Algorithm):
    """Algorithms that share the representation and keep the head."""

    personal: Personal = "head"

    def is_personal(self, model: nn.Module) -> Predicate:
        return predicate(model, self.personal)
