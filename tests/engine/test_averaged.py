"""Answers that travel as the mean of an actor's share, where nobody looks at single ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import srpfl
import tiny
from algorithms.every import KINDS, algorithm, model, remembered
from srpfl.algorithms.averages import Mean
from srpfl.core.slots import Reply
from srpfl.engine import make_engine
from srpfl.engine.base import Engine, Job, Local, Score
from srpfl.engine.ray import packed, unpacked
from srpfl.engine.ray_means import put_back, put_together, taken_out
from srpfl.errors import DivergedError
from srpfl.loop.simulation import mean_by
from srpfl.participation.base import Memory, Outcome


def job(weighting: Any) -> Job:
    return Job(0, 0, "train", range(6), {}, [{}] * 6, (), mean_by=weighting)


def answers(kind: torch.dtype = torch.float32) -> list[Local]:
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.normal(size=(6, 50)) * 10).to(kind)
    values = values if kind.is_floating_point else 6 * values  # means half-way round either way
    return [Local(c, Reply({"w": values[c]}, {}), 0.0, 3 + c) for c in range(6)]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_means_of_shares_make_the_mean_of_all(weighting: Any, kind: torch.dtype) -> None:
    """Also of counts, which are rounded once, and also when they have travelled."""
    server, whole = srpfl.FedAvg(weighting=weighting), answers(kind)
    there = averaged(job(weighting), [whole[:1], whole[1:3], whole[3:]])
    sent = {"w": torch.zeros(50, dtype=kind)}
    found, expected = (server.mean(sent, list(map(seen, each))) for each in (there, whole))
    assert found["w"].dtype == kind
    # Sums in double precision, in another order.
    torch.testing.assert_close(
        found, expected, rtol=1e-7 if kind == torch.float32 else 1e-13, atol=0
    )


def averaged(job: Job, shares: Sequence[list[Local]]) -> list[Local]:
    """The answers of several actors, whose means travel and are put together in a tree of pairs."""
    light = list[Local]()
    means = list[Any]()
    for share in shares:
        found, mean = unpacked(packed(taken_out(0, job, share, 1)))
        light += found
        means.append(mean)
    while len(means) > 1:
        pairs = [means[first : first + 2] for first in range(0, len(means), 2)]
        means = [unpacked(packed(put_together(pair))) for pair in pairs]
    return put_back(0, light, means[0])


def seen(local: Local) -> Any:
    return srpfl.participation.base.Answer(
        local.client, 0.0, local.reply.shared, local.loss, local.samples
    )


def test_a_share_travels_once() -> None:
    many = [Local(c, Reply({"w": torch.full((10_000,), float(c))}, {}), 0.0, 1) for c in range(50)]
    assert packed(many)[2].nbytes == 50 * 40_000
    assert packed(taken_out(0, job("uniform"), many, 3))[2].nbytes == 80_000
    assert taken_out(0, job("uniform"), many[:2], 3) == (many[:2], {})


def test_who_came_to_no_number_can_still_be_named() -> None:
    found = answers()
    found[4].reply.shared["w"][7] = torch.nan
    light, means = taken_out(0, job("uniform"), found[3:], 1)
    assert (light, means) == (found[3:], {})
    both = averaged(job("uniform"), [found[:3], found[3:]])
    assert all(torch.isfinite(each.reply.shared["w"]).all() for each in [*both[:4], both[5]])
    assert both[4].reply.shared["w"][7].isnan()
    mean = torch.stack([each.reply.shared["w"] for each in found[:3]]).double().mean(0)
    torch.testing.assert_close(both[0].reply.shared["w"], mean)  # of those that are numbers


@dataclass(frozen=True, kw_only=True)
class Looking(srpfl.Everyone):
    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        return {"first": [float(answer.loss) for answer in outcome.answers]}


def test_only_where_nobody_looks_at_single_answers() -> None:
    blind = srpfl.Doubling()
    assert mean_by(srpfl.FedRep(), blind) == "uniform"
    assert mean_by(srpfl.FedAvg(weighting="samples"), srpfl.FirstN(n=2)) == "samples"
    for policy in (srpfl.Auto(), srpfl.DivFL(sample=2), srpfl.FlanpRule(), Looking()):
        assert mean_by(srpfl.FedRep(), policy) is None
    for other in (
        srpfl.SCAFFOLD(),
        srpfl.FedRep(average="median"),
        srpfl.FedRep(average="private:1.0,0.8"),
        srpfl.FedRep(average="secure"),
        srpfl.FedRep(wire="int8"),
        srpfl.FedRep(average=Louder()),
    ):
        assert mean_by(other, blind) is None


class Noting:
    """An engine that notes how answers may be averaged."""

    def __init__(self) -> None:
        self.engine = make_engine("loop", tiny.model(), tiny.data(), device="cpu")
        self.noted: list[Any] = []

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        self.noted += [each.mean_by for each in jobs]
        return self.engine.train(jobs)

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        return self.engine.test(jobs)


def test_a_resumed_run_averages_as_before(tmp_path: Path) -> None:
    """Else its sums would have another order, and other last digits."""
    for rounds in (1, 3):
        noting = Noting()
        tiny.simulate(rounds=rounds, out=tmp_path / "run", resume=rounds > 1, engine=noting)
        assert set(noting.noted) == {"uniform"}


@dataclass(frozen=True)
class Louder(Mean):
    """An average of the user's own, which looks at the answers."""


class Halves:
    """Two actors without a cluster."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.means = engine, 0

    def train(self, jobs: Sequence[Job]) -> list[list[Local]]:
        found = []
        for job, locals_ in zip(jobs, self.engine.train(jobs), strict=True):
            half = len(locals_) // 2
            found.append(averaged(job, [part for part in (locals_[:half], locals_[half:]) if part]))
            self.means += len({id(each.reply.shared) for each in found[-1]})
        return found

    def test(self, jobs: Sequence[Job]) -> list[list[Score]]:
        return self.engine.test(jobs)


MEANS = [name for name in KINDS if algorithm(name).takes_mean]
PARTLY = srpfl.Deadline(seconds=2.0, partial=True)  # several amounts of work make several jobs


@pytest.mark.parametrize(
    ("name", "policy"), [("FedRep", PARTLY), *((name, srpfl.Everyone()) for name in MEANS)]
)
def test_a_run_is_the_same(name: str, policy: Any) -> None:
    choices: dict[str, Any] = {
        "algorithm": replace(algorithm(name), weighting="samples"),
        "model": (net := model(name).double()),
        "data": (data := tiny.data(clients=8, per_client=5)),
        "participation": policy,
        "rounds": 2,
        "evaluate_every": 0,
        "pretrained": True,
        "precision": "float64",
    }
    halves = Halves(make_engine("loop", net, data, device="cpu", precision="float64"))
    run, alone = tiny.simulate(**{**choices, "engine": halves}), tiny.simulate(**choices)
    assert halves.means < sum(len(record.participants) for record in run.rounds)
    found, expected = remembered(run), remembered(alone)
    assert found.keys() == expected.keys()
    for key, value in expected.items():  # sums in another order, in double precision
        torch.testing.assert_close(found[key].double(), value.double(), rtol=1e-9, atol=1e-9)


def test_a_client_that_diverges_is_named() -> None:
    wild = srpfl.FedAvg(rule=srpfl.SGD(lr=1e30), epochs=2)
    choices: dict[str, Any] = {"algorithm": wild, "participation": srpfl.Everyone()}
    with pytest.raises(DivergedError) as alone:
        tiny.simulate(**choices)
    halves = Halves(make_engine("loop", tiny.model(), tiny.data(), device="cpu"))
    with pytest.raises(DivergedError, match="client") as halved:
        tiny.simulate(**choices, engine=halves)
    assert str(halved.value) == str(alone.value)
