"""The parts of many clients: what is read is what was put, and nobody pays for the others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import srpfl
import tiny
from srpfl.core.split import Params
from srpfl.errors import RunFolderError
from srpfl.runs import checkpoint, segments, shelf
from srpfl.runs.checkpoint import Checkpoints
from srpfl.runs.doctor import examine
from srpfl.runs.state import ClientParts, State

CLIENTS = 40


def part(value: float) -> Params:
    """Tensors of several types and shapes, also without a number in them."""
    return {
        "w": torch.full((2, 3), value),
        "b": torch.tensor(value, dtype=torch.float64),
        "half": torch.full((3,), value, dtype=torch.bfloat16),
        "seen": torch.tensor([int(value)]),
        "none": torch.zeros(0, 3),
    }


def empty_parts(room: int = 0) -> ClientParts:
    """With no room, all that was saved is read from the disk."""
    return ClientParts(part(0.0), {"c": {"w": torch.zeros(2)}}, clients=CLIENTS, room=room)


def state_after(round: int) -> State:
    return State(round, 0.0, {"phi": torch.zeros(1)}, {})


def loaded(folder: Path, rounds: int = 10**6) -> tuple[Checkpoints, State, ClientParts]:
    found = Checkpoints(folder)
    args: dict[str, Any] = {"rounds": rounds, "say": pytest.fail, "sealed": True}
    return found, *found.load(state_after(0), empty_parts(), **args)


@given(
    rounds=st.lists(st.sets(st.integers(0, CLIENTS - 1), max_size=12), min_size=1, max_size=25),
    resumed=st.sets(st.integers(1, 25)),
    files=st.integers(1, 6),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_what_is_read_is_what_was_put_last(rounds, resumed, files, tmp_path_factory) -> None:
    folder = tmp_path_factory.getbasetemp() / "parts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    checkpoints, parts, truth = Checkpoints(folder), empty_parts(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shelf, "FILES", files)
        for round, changed in enumerate(rounds, start=1):
            for client in changed:
                value = float(round * 100 + client)
                parts.put(client, part(value), {"c": {"w": torch.full((2,), value)}})
                truth[client] = value
            before = dict(truth) if round == len(rounds) - 1 else None
            checkpoints.save(state_after(round), parts)
            if before is not None:
                older = before
            if round in resumed:
                checkpoints, _, parts = loaded(folder)
        if len(rounds) > 1:  # the checkpoint before the last one is whole as well
            check(loaded(folder, rounds=len(rounds) - 1)[2], older)
        assert len(list((folder / "personal").glob("*"))) <= 2 * files + 2
    check(parts, truth)
    check(loaded(folder)[2], truth)


def check(parts: ClientParts, truth: dict[int, float]) -> None:
    assert {*parts.trained} == {*truth}
    for client in range(CLIENTS):
        value = truth.get(client, 0.0)
        assert tiny.same(parts.of(client), part(value))
        assert tiny.same(parts.slots_of(client)["c"], {"w": torch.full((2,), value)})


def test_a_checkpoint_writes_in_proportion_to_what_changed(tmp_path: Path) -> None:
    """Rows that are written again, because few of their file's count, are no more than the rest."""
    checkpoints, parts, written = Checkpoints(tmp_path), empty_parts(), 0
    rng = srpfl.core.randomness.stream(0, "test")
    everyone, at_once, rounds = 2000, 50, 200
    parts.clients = everyone
    for round in range(1, rounds + 1):
        for client in rng.choice(everyone, size=at_once, replace=False).tolist():
            parts.put(client, part(float(round)), {"c": {"w": torch.zeros(2)}})
        checkpoints.save(state_after(round), parts)
        newest = segments.Segment(tmp_path / "personal" / f"{round:06d}.safetensors")
        rows = newest.clients(parts.initial)
        assert rows is not None
        assert len(rows) <= 4 * at_once
        written += len(rows)
    assert written <= 2.2 * rounds * at_once
    state = tmp_path / "checkpoints" / f"{rounds:06d}" / "state.json"
    assert state.stat().st_size < 200 * rounds  # whoever took part, and however many


def test_a_checkpoint_waits_for_few_files_of_many_and_later_ones_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is slow, or has much to write, must not hold up a round for long."""
    synced: list[str] = []
    monkeypatch.setattr(checkpoint, "sync", lambda path: synced.append(path.name))
    checkpoints, parts = Checkpoints(tmp_path), empty_parts()
    for round in range(1, 6):
        parts.put(round, part(float(round)), {"c": {"w": torch.zeros(2)}})
        checkpoints.save(state_after(round), parts)
    assert not checkpoints.settle_parts(0.0)
    assert synced == ["000001.safetensors", "000002.safetensors"]
    assert not checkpoints.settle_parts(0.0)
    assert checkpoints.settle_parts(0.0)
    assert len(synced) == 5
    checkpoints.settle()
    assert synced[5:] == ["personal", "shared.safetensors", "state.json", "000005", "checkpoints"]


def test_going_on_reads_parts_only_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices: dict[str, Any] = {"out": tmp_path / "run", "rounds": 5, "evaluate_every": 0}
    tiny.simulate(**choices)
    read = 0
    real = segments.Segment.row

    def row(self: segments.Segment, place: int) -> Params:
        nonlocal read
        read += 1
        return real(self, place)

    monkeypatch.setattr(segments.Segment, "row", row)
    run = tiny.simulate(**choices, resume=True)
    assert read == 0
    run.model_of(0)
    run.model_of(0)
    assert read == 1
    shutil.rmtree(tmp_path / "run")
    run.model_of(0)
    with pytest.raises(RunFolderError, match=r"the part of client 1 .* cannot be read any more"):
        run.model_of(1)


def test_parts_that_are_not_in_memory_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices: dict[str, Any] = {"algorithm": srpfl.Ditto(), "rounds": 5}
    near = tiny.simulate(out=tmp_path / "near", **choices)
    monkeypatch.setitem(ClientParts.__init__.__kwdefaults__, "room", 0)
    far = tiny.simulate(out=tmp_path / "far", **choices)
    assert near.rounds == far.rounds
    assert near.evaluations == far.evaluations
    assert len(far.parts._near) == 1
    for client in range(6):
        assert tiny.same(near.parts.kept(client), far.parts.kept(client))
    assert examine(tmp_path / "far").whole
