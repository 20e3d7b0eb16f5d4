"""The same seed and the same participants give the simulator's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import srpfl
import tiny
from algorithms import every
from flower.federation import Federation
from srpfl.clock.base import Work
from srpfl.participation.base import Memory, Outcome

SPEEDS = [1.0, 4.0, 2.0, 3.0, 6.0, 5.0]


class Given:
    """A clock that says what the nodes do."""

    communication = 0.0
    fixed = True

    def times(self, seed: int, round: int, clients: Any, population: int, work: Work) -> Any:
        import numpy as np

        return np.array(SPEEDS)[clients]


@pytest.mark.parametrize("name", every.KINDS)
def test_simulation_equals_deployment(tmp_path: Path, name: str) -> None:
    # Everyone is asked and waited for: the participants are the same by construction.
    equal(tmp_path, every.algorithm(name), every.model(name))


def test_weights_by_samples_too(tmp_path: Path) -> None:
    equal(tmp_path, srpfl.FedRep(head_epochs=1, body_epochs=1, weighting="samples"), tiny.model())


def equal(folder: Path, algorithm: Any, model: nn.Module) -> None:
    same: dict[str, Any] = {"algorithm": algorithm, "model": model, "rounds": 3}
    policy = srpfl.Everyone()
    simulated = tiny.simulate(participation=policy, clock=Given(), **same)
    federation = Federation(folder, SPEEDS, participation=policy, **same)
    check(simulated, federation.serve(), federation)


def test_with_stragglers_too_as_long_as_they_give_way(tmp_path: Path) -> None:
    # The simulator's stragglers drop their work when nobody waits; here a short schedule whose
    # stages grow never asks a busy one.
    schedule = srpfl.Doubling(schedule=[(6, 1), (3, 1)])
    simulated = tiny.simulate(participation=schedule, clock=Given(), rounds=2)
    federation = Federation(tmp_path, SPEEDS, participation=schedule, rounds=2)
    check(simulated, federation.serve(), federation)


@dataclass(frozen=True, kw_only=True)
class Compares(srpfl.Everyone):
    """Remembers what it was shown of each client."""

    compares: ClassVar[bool] = True

    def learn(self, memory: Memory, outcome: Outcome) -> Memory:
        shown = {a.client: sum(float(v.sum()) for v in a.shared.values()) for a in outcome.answers}
        return {str(client): shown[client] for client in sorted(shown)}


def test_who_compares_corrected_answers_is_shown_the_same(tmp_path: Path) -> None:
    same: dict[str, Any] = {"algorithm": srpfl.SCAFFOLD(), "participation": Compares(), "rounds": 3}
    simulated = tiny.simulate(clock=Given(), **same)
    federation = Federation(tmp_path, SPEEDS, **same)
    deployed = federation.serve()
    check(simulated, deployed, federation)
    assert simulated.state is not None
    assert deployed.state is not None
    assert deployed.state.memory == simulated.state.memory


def test_a_sample_of_the_clients_is_the_same_sample(tmp_path: Path) -> None:
    policy = srpfl.Everyone(sample=0.5)
    simulated = tiny.simulate(participation=policy, clock=Given(), rounds=4)
    federation = Federation(tmp_path, SPEEDS, participation=policy, rounds=4)
    check(simulated, federation.serve(), federation)


def check(simulated: srpfl.Run, deployed: srpfl.Run, federation: Federation) -> None:
    assert [r.participants for r in deployed.rounds] == [r.participants for r in simulated.rounds]
    assert simulated.state is not None
    assert deployed.state is not None
    assert simulated.parts is not None
    # One machine, one engine, the same order of sums: not a tolerance but the same bits.
    assert tiny.same(deployed.state.shared, simulated.state.shared)
    assert deployed.state.server.keys() == simulated.state.server.keys()
    for slot, tensors in simulated.state.server.items():
        assert tiny.same(deployed.state.server[slot], tensors)
    for client, part in simulated.parts.trained.items():
        if part:
            kept = load_file(federation.kept(client))
            assert all(torch.equal(kept[name], part[name]) for name in part)
