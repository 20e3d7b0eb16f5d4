"""A server that is killed goes on from the last finished round, and counts nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import srpfl
import tiny
from flower.federation import Federation
from srpfl.errors import RunFolderError
from srpfl.flower.keeping import KeepingFlowerTransport
from srpfl.flower.transport import FlowerTransport
from srpfl.runs.folder import RunFolder


class KilledError(Exception):
    """Stands for kill -9: nothing after it is carried out."""


PLACES = [
    (FlowerTransport, "send"),  # before a round's letters
    (FlowerTransport, "collect"),  # answers are there
    (KeepingFlowerTransport, "settle"),  # averaged
    (RunFolder, "add"),  # before the record is written
    (RunFolder, "save"),  # recorded, not saved
    (RunFolder, "add_timing"),  # saved, nobody has heard of it
    (FlowerTransport, "evaluate"),
]
CASES = [(*place, call) for place in PLACES for call in (1, 2)] + [(FlowerTransport, "finish", 1)]


@pytest.mark.parametrize(
    ("owner", "name", "call"), CASES, ids=[f"{name}-{call}" for _, name, call in CASES]
)
def test_killed_anywhere_and_started_again_is_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: int
) -> None:
    killed_and_started_again(tmp_path, monkeypatch, owner, name, call)


@pytest.mark.parametrize("algorithm", [srpfl.SCAFFOLD(), srpfl.FedAdam(), srpfl.Ditto()], ids=type)
@pytest.mark.parametrize(("owner", "name"), [(RunFolder, "save"), (FlowerTransport, "evaluate")])
def test_what_an_algorithm_remembers_survives_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, algorithm: Any
) -> None:
    killed_and_started_again(tmp_path, monkeypatch, owner, name, 2, algorithm=algorithm)


def killed_and_started_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    call: int,
    **choices: Any,
) -> None:
    choices |= {"participation": srpfl.Doubling(start=1, every=1), "evaluate_every": 1}
    whole = Federation(tmp_path / "whole", [1, 3, 2], **choices)
    expected = whole.serve()
    federation = Federation(tmp_path / "killed", [1, 3, 2], **choices)
    real = getattr(owner, name)
    calls = 0

    def killing(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            raise KilledError
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, killing)
    with pytest.raises(KilledError):
        federation.serve()
    run = federation.serve()
    assert [r.participants for r in run.rounds] == [r.participants for r in expected.rounds]
    assert [(e.round, e.kind, e.value) for e in run.evaluations] == [
        (e.round, e.kind, e.value) for e in expected.evaluations
    ]
    assert run.state is not None
    assert expected.state is not None
    assert tiny.same(run.state.shared, expected.state.shared)
    assert run.state.server.keys() == expected.state.server.keys()
    for slot, tensors in expected.state.server.items():
        assert tiny.same(run.state.server[slot], tensors)
    for client in range(3):
        assert federation.kept(client).exists() == whole.kept(client).exists()
        if whole.kept(client).exists():
            assert tiny.same(load_file(federation.kept(client)), load_file(whole.kept(client)))


def test_a_damaged_checkpoint_is_played_again_from_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed before anyone heard of the round that is lost with it."""
    whole = Federation(tmp_path / "whole", [1, 1, 1])
    expected = whole.serve()
    federation = Federation(tmp_path / "damaged", [1, 1, 1])
    saved = RunFolder.save

    def killed_after_two(folder: RunFolder, state: Any, parts: Any) -> None:
        saved(folder, state, parts)
        if state.round == 2:
            raise KilledError

    monkeypatch.setattr(RunFolder, "save", killed_after_two)
    with pytest.raises(KilledError):
        federation.serve()
    monkeypatch.setattr(RunFolder, "save", saved)
    last = federation.folder / "run" / "checkpoints" / "000002" / "shared.safetensors"
    content = bytearray(last.read_bytes())
    content[-5] ^= 255
    last.write_bytes(content)
    run = federation.serve()
    assert "the checkpoint after round 2 is damaged" in capsys.readouterr().err
    assert len(run.rounds) == 3
    assert run.state is not None
    assert expected.state is not None
    assert tiny.same(run.state.shared, expected.state.shared)


def test_a_finished_run_is_not_played_again(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1])
    federation.serve()
    trained = federation.of(0).received.count("train")
    federation.serve()
    assert federation.of(0).received.count("train") == trained


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1])
    federation.serve()
    with pytest.raises(RunFolderError, match="differs in seed"):
        federation.serve(seed=1)


def test_two_servers_cannot_share_a_folder(tmp_path: Path) -> None:
    federation = Federation(tmp_path, [1, 1, 1])
    federation.serve(rounds=3)
    first = RunFolder(tmp_path / "run")
    first.claim()
    with pytest.raises(RunFolderError, match="another process"):
        federation.serve(rounds=3)
    first.release()
    federation.serve(rounds=3)
