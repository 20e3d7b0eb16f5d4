"""A process that has imported everything and forks runs, for a test to kill: Python with PyTorch
takes longer to start than a run takes.

It is spoken to in lines of JSON. ``{"folder": ..., "engine": ..., "method": ..., "policy": ...,
"resume": ...}`` starts a run, the first process of a session of its own, and is answered by its
number; ``{"folder": ..., "command": [...]}`` starts a command in the same way, ``{"folder": ...}``
a run that never ends; ``{"wait": NUMBER}`` is answered by the exit code, or by null if it does not
end.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import nn

import srpfl
import srpfl.cli
import tiny
from algorithms.every import algorithm
from srpfl.options.methods import METHODS

ROUNDS, CLIENTS, PATIENCE = 10, 6, 120.0
TAG = "SRPFL_NURSERY"  # in the environment of all that a run starts: its number
POLICIES = {
    "everyone": srpfl.Everyone(),
    "auto": srpfl.Auto(start=2),
    "fedbuff": srpfl.FedBuff(k=2, sample=4),
    "doubling": srpfl.Doubling(start=2, every=3),
}


class Slowly(srpfl.Watcher):
    """Leaves the test time to kill."""

    def round(self, record: srpfl.runs.records.RoundRecord) -> None:
        time.sleep(0.02)


def model(kind: str, *, large: bool) -> nn.Module:
    """One that every algorithm can train; auto takes workers for a large one."""
    wide, narrow = (256, 200) if large else (8, 5)
    if kind != "FedBN":
        return srpfl.models.MLP(4, (wide, narrow), classes=3)
    first, last = nn.Linear(4, wide), nn.Linear(narrow, 3)
    return nn.Sequential(first, nn.BatchNorm1d(wide), nn.ReLU(), nn.Linear(wide, narrow), last)


def play(folder: Path, engine: str, method: str, policy: str, resume: bool) -> None:
    kind, implied = METHODS[method].kind, METHODS[method].participation
    run = tiny.simulate(
        data=tiny.data(clients=CLIENTS, per_client=20),
        model=model(kind, large=engine == "auto"),
        algorithm=algorithm(kind),
        participation=POLICIES[policy if implied == "everyone" else implied],
        engine=engine,
        rounds=ROUNDS,
        evaluate_every=3,
        checkpoint_every=2,
        out=folder,
        resume=resume,
        watchers=[Slowly()],
    )
    digest = hashlib.sha256()
    kept = [run.parts.kept(client) for client in range(CLIENTS)]
    for tensors in (run.state.shared, *run.state.server.values(), *kept):
        for name in sorted(tensors):
            digest.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
    folder.with_suffix(".weights").write_text(digest.hexdigest())


class Endless(torch.nn.Module):
    """Computes for ever in a worker, never waiting for anything, and says so."""

    def __init__(self, says: Path) -> None:
        super().__init__()
        self.net, self.says = tiny.model(), says

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.net(x)
        while multiprocessing.parent_process() is not None:
            self.says.touch()
        return outputs


def endless(folder: Path) -> None:
    """The workers are forked by a thread that is not the main one."""
    model = Endless(folder.with_suffix(".computes"))
    run = {"model": model, "engine": "workers", "out": folder}
    thread = threading.Thread(target=tiny.simulate, kwargs=run)
    thread.start()
    thread.join()


def command(folder: Path, command: Sequence[str]) -> None:
    sys.argv = ["srpfl", *command]
    srpfl.cli.main()


def exit_code(number: int) -> int | None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found, status = os.waitpid(number, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def start(told: dict[str, Any]) -> int:
    number = os.fork()
    if number == 0:
        os.setsid()
        os.environ[TAG] = str(os.getpid())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started with
        folder = Path(told.pop("folder"))
        words = os.open(folder.with_suffix(".stderr"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDWR)
        for old, new in ((nothing, 0), (nothing, 1), (words, 2)):
            os.dup2(old, new)
        try:
            do = command if "command" in told else play if told else endless
            do(folder, **told)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # what comes now is Python's own end
            sys.exit(130)
        sys.exit(0)  # by the way that every process ends, with all that waits to be done then
    return number


if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # two workers anywhere
    torch.set_num_threads(1)
    tiny.simulate(engine="vectorised", rounds=1)  # imports much when it is first used
    for text in sys.stdin:
        message = json.loads(text)
        answer = exit_code(message["wait"]) if "wait" in message else start(message)
        print(json.dumps(answer), flush=True)
