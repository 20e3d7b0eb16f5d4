"""Flower's processes on this machine alone: a SuperLink and SuperNodes that end when we do.

Every process is started in a session of its own and marked in its environment. Flower starts
further ones, some in sessions of theirs; they inherit the mark, and by it they are found again. A
guard beside them ends them all if we end without doing it, even by kill -9.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from srpfl.errors import SrpflError
from srpfl.flower import guard
from srpfl.flower.guard import MARK, end_all, marked

HOST = "127.0.0.1"
NAME = "srpfl"  # of the connection in Flower's configuration


class DeploymentError(SrpflError):
    """Flower's processes did not do what they were started for."""


class LocalFlower:
    """A SuperLink and SuperNodes, as a context: leaving it stops all that was started."""

    def __init__(
        self,
        folder: Path,
        *,
        superlink: Sequence[str] = ("--insecure",),
        connection: Mapping[str, Any] | None = None,
        temporary: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self.port = free_port()
        self.mark = uuid.uuid4().hex
        self._superlink_options = superlink
        self._connection = {"insecure": True} if connection is None else connection
        self.fleet = ""  # where nodes find the SuperLink, if there is something in front of it
        self._temporary = temporary  # the folder is of no use when all has ended
        self._guard: subprocess.Popen[bytes] | None = None
        self.superlink: subprocess.Popen[bytes] | None = None
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        home = self.folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        options = {"address": self.address, **self._connection}
        lines = [f"{key} = {json.dumps(value)}" for key, value in options.items()]
        text = f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\n' + "\n".join(lines)
        (home / "config.toml").write_text(text + "\n")
        try:
            self._start_guard()
            self.start_superlink()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start_superlink(self, *, limit: float = 90.0) -> None:
        """Start it, or start it again, and wait until it listens."""
        command = ["flower-superlink", *self._superlink_options]
        command += ["--disable-runtime-dependency-installation", "--host", HOST]
        command += ["--port", str(self.port), "--database", str(self.folder / "state.db")]
        process = self.superlink = self._start("superlink", command)
        until(lambda: process.poll() is not None or self._listens(), limit, "the SuperLink")
        if process.poll() is not None:
            raise DeploymentError(f"the SuperLink ended at once: {self._tail('superlink')}")

    def start_node(
        self, name: str, config: Mapping[str, Any], options: Sequence[str] = ("--insecure",)
    ) -> None:
        """Start a SuperNode with its node config."""
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        command = ["flower-supernode", *options, "--superlink", self.fleet or self.address]
        command += ["--port", str(free_port()), "--node-config", pairs]
        self.nodes[name] = self._start(name, command)

    def submit(self, app: Path, *, limit: float = 120.0) -> str:
        """Start a run of an app and return Flower's id of it."""
        answer = self.flwr("run", str(app), NAME, "--format", "json", limit=limit)
        if not answer.get("success"):
            raise DeploymentError(f"Flower did not start the run: {answer.get('error-message')}")
        return str(answer["run-id"])

    def log(self, run: str) -> str:
        """What the server app of a run has printed."""
        command = [_program("flwr"), "log", run, NAME, "--show"]
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, timeout=60
        )
        return done.stdout

    def flwr(self, *arguments: str, limit: float = 60.0) -> dict[str, Any]:
        """A call of Flower's own command, which answers in JSON."""
        done = subprocess.run(
            [_program("flwr"), *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=limit,
        )
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise DeploymentError(
                f"flwr {arguments[0]} failed: {(done.stdout + done.stderr).strip()[-400:]}"
            ) from None
        return answer

    def pids(self, program: str = "") -> list[int]:
        """The processes of this deployment that run, or those of one of Flower's programs."""
        return [pid for pid, command in marked(self.mark) if program in command]

    def kill_node(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a SuperNode with all that it started, or tell it to end."""
        node = self.nodes.pop(name)
        os.killpg(node.pid, how)
        node.wait(timeout=30)

    def stop(self) -> None:
        """End everything that was started, and what that has started; checkpoints and personal
        parts are written whole or not at all, so nothing is lost by it."""
        end_all(self.mark)
        for process in [*self.nodes.values(), *([self.superlink] if self.superlink else [])]:
            if process.poll() is None:  # where there is no /proc to find the others by
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)
        self.nodes = {}
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(timeout=30)
            self._guard = None

    def _start_guard(self) -> None:
        """Before anything else: whatever happens to us, it sees to the rest."""
        clean = {name: value for name, value in os.environ.items() if name != MARK}
        folder = [str(self.folder)] if self._temporary else []
        self._guard = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, self.mark, *folder],
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [_program(command[0]), *command[1:]],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        programs = str(Path(sys.executable).parent)  # Flower finds its own programs by the path
        quick = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2", "PYTHONUNBUFFERED": "1"}
        silent = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        # Where the command finds a user's own modules, the nodes find them too.
        modules = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), os.getcwd()]))
        return {
            "OMP_NUM_THREADS": "1",  # the nodes share this machine
            **os.environ,
            **quick,
            **silent,
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": modules,
            "FLWR_HOME": str(self.folder / "home"),
            MARK: self.mark,
        }

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((HOST, self.port)) == 0

    def _tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-400:].strip()


def until(reached: Callable[[], bool], limit: float, what: str, *, poll: float = 0.1) -> None:
    """Wait for something, but not for ever."""
    end = time.monotonic() + limit
    while not reached():
        if time.monotonic() > end:
            raise DeploymentError(f"waited {limit:g} s for {what}, which did not come")
        time.sleep(poll)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _program(name: str) -> str:
    """One of Flower's programs, as installed beside this Python."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name
