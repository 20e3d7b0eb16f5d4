"""A run that dies at any file operation, by the loss of power, or on a full disk."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

import srpfl
import tiny
from runs.damage import RECORDS, copy_of
from srpfl.errors import RunFolderError
from srpfl.runs import checkpoint, files
from srpfl.runs import folder as folders
from srpfl.runs.doctor import examine
from srpfl.runs.folder import RunFolder
from srpfl.runs.segments import CLIENTS

CHOICES: dict[str, Any] = {"rounds": 5, "evaluate_every": 2}
TRIALS = 20  # that together die at every operation


class KilledError(BaseException):
    """Stands for kill -9: nothing after it is carried out."""


def same_as(whole: Path, folder: Path) -> None:
    names = [name for name in RECORDS if (whole / name).exists()]
    assert names == [name for name in RECORDS if (folder / name).exists()]
    for name in names:
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    newest = sorted((whole / "checkpoints").iterdir())[-1]
    for file in ("shared.safetensors", "state.json"):  # which names and sums up the personal files
        mine = folder / newest.relative_to(whole) / file
        assert mine.read_bytes() == (newest / file).read_bytes()


class Disk:
    """Counts what is done to files, and dies at one of these operations: before it, after it, or
    halfway. Once dead it does nothing more, whatever a program tries while it ends."""

    OPERATIONS = (
        (folders, "append"),
        (Path, "replace"),
        (Path, "rename"),
        (Path, "unlink"),
        (Path, "mkdir"),
        (shutil, "rmtree"),
        (files, "fill_draft"),
        (os, "fsync"),
    )

    def __init__(self, dies_at: int = 0, when: str = "before") -> None:
        self.dies_at, self.when, self.count = dies_at, when, 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in self.OPERATIONS:
                patch.setattr(owner, name, self._operation(getattr(owner, name), name))
            with contextlib.suppress(KilledError):
                yield

    def _operation(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if not self.dies_at or self.count < self.dies_at:
                return real(*args, **kwargs)
            if self.count == self.dies_at and self.when == "after":
                real(*args, **kwargs)
            elif self.count == self.dies_at and self.when == "halfway":
                _half(real, name, args)
            raise KilledError

        return operation


def _half(real: Callable[..., Any], name: str, args: tuple[Any, ...]) -> None:
    """Half of those operations that have one."""
    if name == "append":
        path, text = args
        real(path, text[: len(text) // 2])
    elif name == "fill_draft":
        path, data = args
        real(path, data[: len(data) // 2])
    elif name == "rmtree":
        next(args[0].iterdir()).unlink()


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "halfway", "after"])
@pytest.mark.parametrize("engine", ["loop", "vectorised", "workers"])
def test_killed_at_any_file_operation_a_run_goes_on_exactly(
    engine: str, when: str, trial: int, quick_path: Path
) -> None:
    whole, disk = quick_path / "whole", Disk()
    choices = {**CHOICES, "engine": engine}
    with disk.watched():
        tiny.simulate(out=whole, **choices)
    assert disk.count > TRIALS
    for number in range(1 + trial % TRIALS, disk.count + 1, TRIALS):
        folder = quick_path / f"{number}"
        with Disk(number, when).watched():
            tiny.simulate(out=folder, **choices)
        started = (folder / "config.json").exists()
        tiny.simulate(out=folder, resume=started, **choices)
        same_as(whole, folder)
        assert examine(folder).whole


@pytest.mark.parametrize("settled", [0, 1, 2, 3])
def test_a_loss_of_power_costs_the_rounds_since_the_disk_was_waited_for(
    settled: int, quick_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """What was not waited for is gone or full of zeros, and what was removed stays removed."""
    whole, folder, synced = quick_path / "whole", quick_path / "run", quick_path / "synced"
    tiny.simulate(out=whole, **CHOICES)
    real, settles = RunFolder._settle, 0

    def settle(self: RunFolder, most: float = math.inf) -> None:
        nonlocal settles
        settles += 1
        if settles == settled:
            real(self)
            copy_of(folder, synced)
        self._next_wait = 0.0

    class Stop(srpfl.Watcher):
        def begin(self, name: str, rounds: int, done: int) -> None:
            copy_of(folder, synced)

        def round(self, record: Any) -> None:
            if record.round == 5:
                raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "_settle", settle)
        patch.setattr(folders, "FIRST_WAIT", 0.0)
        with pytest.raises(KilledError):
            tiny.simulate(out=folder, watchers=[Stop()], **CHOICES)
    lost = 0
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        safe = synced / path.relative_to(folder)
        known = safe.read_bytes() if safe.exists() else b""
        data = path.read_bytes()
        if data != known:
            path.write_bytes(data[: len(known)] + bytes(len(data) - len(known)))
            lost += 1
    assert lost > 3
    capsys.readouterr()
    tiny.simulate(out=folder, resume=True, **CHOICES)
    told = capsys.readouterr().err
    assert f"the last good state is that after round {settled}" in told
    same_as(whole, folder)


def test_the_disk_is_waited_for_at_the_end_and_seldom_before_and_never_without_sync(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    for module in (files, checkpoint, folders):
        monkeypatch.setattr(module, "sync", calls.append)
    tiny.simulate(out=quick_path / "run", **CHOICES)
    newest = quick_path / "run" / "checkpoints" / "000005"
    assert {newest, newest / "state.json", quick_path / "run" / "rounds.jsonl"} <= set(calls)
    assert {quick_path, quick_path / "run", newest.parent} <= set(calls)
    assert len(calls) < 40
    calls.clear()
    tiny.simulate(out=quick_path / "fast", sync=False, **CHOICES)
    tiny.simulate(out=quick_path / "fast", sync=False, resume=True, **CHOICES)
    assert calls == []


@pytest.mark.parametrize("file", [".state.json", ".shared.safetensors", ".rounds.jsonl"])
def test_a_full_disk_leaves_no_drafts(
    file: str, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = quick_path / "run"
    whole = tiny.simulate(out=quick_path / "whole", **CHOICES)
    calls = 0

    def full(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            path = next(str(arg) for arg in args if isinstance(arg, (str, Path)))
            calls += file in path or file[1:] in path
            if calls > 2 and (file in path or file[1:] in path):
                with contextlib.suppress(OSError):
                    Path(path).write_bytes(b"{") if file in path else None
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args, **kwargs)

        return write

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "open", full("open", os.open))
        patch.setattr(files, "fill_draft", full("fill_draft", files.fill_draft))
        with pytest.raises(RunFolderError, match="No space left on device"):
            tiny.simulate(out=folder, **CHOICES)
    assert not files.drafts(folder)
    run = tiny.simulate(out=folder, resume=True, **CHOICES)
    assert tiny.same(run.state.shared, whole.state.shared)
    same_as(quick_path / "whole", folder)


DIES_WRITING = """
import resource, signal, sys
from pathlib import Path
import tiny
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
tiny.simulate(model=tiny.wide(), out=Path(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of a file's size")
def test_killed_in_the_middle_of_a_write_nothing_stays(quick_path: Path) -> None:
    """The system ends the process at a byte of the weights, whoever writes them."""
    folder = quick_path / "run"
    path = os.pathsep.join([str(Path(tiny.__file__).parent), *sys.path])
    died = subprocess.run(
        [sys.executable, "-c", DIES_WRITING, str(folder)], env={**os.environ, "PYTHONPATH": path}
    )
    assert died.returncode == -signal.SIGXFSZ
    assert not examine(folder).whole
    tiny.simulate(model=tiny.wide(), out=folder, resume=True)
    assert not files.drafts(folder)
    assert examine(folder).whole


def test_drafts_of_a_crash_go_when_the_run_goes_on(quick_path: Path) -> None:
    folder = quick_path / "run"
    tiny.simulate(out=folder, rounds=4)
    for name in (".000003.99", ".000002.98"):
        (folder / "checkpoints" / name).mkdir()
        (folder / "checkpoints" / name / "shared.safetensors").write_text("half")
    others = folder / "checkpoints" / ".000002.98" / ".nfs0001"
    others.write_text("not ours")
    (folder / "personal" / ".000003.safetensors.99").write_text("half")
    (folder / ".rounds.jsonl.99").write_text("half")
    assert [finding.wrong for finding in examine(folder).findings] == [
        "a crash left 4 files half written"
    ]
    tiny.simulate(out=folder, rounds=4, resume=True)
    assert not files.drafts(folder)
    assert examine(folder).whole
    assert list(others.parent.iterdir()) == [others]


@pytest.mark.parametrize("left", [[], [".state.json.99", ".shared.safetensors.99"]])
def test_a_checkpoint_whose_names_the_disk_has_lost_is_in_nobodys_way(
    left: list[str], quick_path: Path
) -> None:
    whole, folder = quick_path / "whole", quick_path / "run"
    tiny.simulate(out=whole, **CHOICES)
    copy_of(whole, folder)
    hollow = folder / "checkpoints" / "000005"
    for file in hollow.iterdir():
        file.unlink()
    for name in left:
        (hollow / name).write_text("half")
    tiny.simulate(out=folder, resume=True, **CHOICES)
    same_as(whole, folder)
    assert examine(folder).whole


def parts_in(folder: Path) -> int:
    """How many personal parts the files of a run hold, live and past."""
    held = 0
    for file in (folder / "personal").iterdir():
        with safe_open(file, framework="pt") as tensors:
            held += len(tensors.get_tensor(CLIENTS))
    return held


@pytest.mark.slow
def test_personal_files_hold_little_more_than_what_is_live(quick_path: Path) -> None:
    """With dynamic speeds some client is slow each time; its part must not keep a whole file. The
    newest checkpoint may need twice what is live, and so may the last that was waited for."""
    choices = {
        "data": tiny.data(clients=20),
        "clock": srpfl.DynamicExponential(),
        "participation": srpfl.FirstN(n=10),
        "rounds": 20,
        "evaluate_every": 0,
        "engine": "vectorised",
        "algorithm": srpfl.FedRep(head_epochs=1, body_epochs=1),
    }
    whole, folder = quick_path / "whole", quick_path / "run"
    held: list[int] = []

    class Look(srpfl.Watcher):
        def round(self, record: Any) -> None:
            if record.round > 1:
                held.append(parts_in(whole))

    class Stop(srpfl.Watcher):
        def round(self, record: Any) -> None:
            if record.round == 12:
                raise KilledError

    run = tiny.simulate(out=whole, watchers=[Look()], **choices)
    assert max(held) <= 5 * len(run.parts.trained)
    with pytest.raises(KilledError):
        tiny.simulate(out=folder, watchers=[Stop()], **choices)
    resumed = tiny.simulate(out=folder, resume=True, **choices)
    same_as(whole, folder)
    for client in range(20):
        assert tiny.same(run.parts.of(client), resumed.parts.of(client))


def test_an_empty_checkpoint_is_no_obstacle(tmp_path: Path) -> None:
    """As a loss of power may leave it behind, before its files were on the disk."""
    whole, folder = tmp_path / "whole", tmp_path / "run"
    tiny.simulate(out=whole, rounds=3)
    tiny.simulate(out=folder, rounds=2)
    (folder / "checkpoints" / "000003").mkdir()
    tiny.simulate(out=folder, rounds=3, resume=True)
    for name in ("rounds.jsonl", "checkpoints/000003/shared.safetensors"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


def test_files_of_others_in_a_checkpoint_are_named(tmp_path: Path) -> None:
    tiny.simulate(out=tmp_path / "run", rounds=2)
    place = tmp_path / "run" / "checkpoints" / "000003"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="000003 holds files of others, move them elsewhere"):
        tiny.simulate(out=tmp_path / "run", rounds=3, resume=True)
    assert (place / "notes.txt").read_text() == "mine"
