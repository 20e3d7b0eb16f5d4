"""Ray, where it is wanted: found or explained, connected to or started, never beyond this machine
unless it is told where."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

from srpfl.core.processes import ours_alone
from srpfl.errors import ConfigError

ADDRESS = "RAY_ADDRESS"  # in the environment: the cluster to connect to
# In the environment: whether nodes are to be reached from elsewhere, on every system.
ELSEWHERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


_own: list[contextlib.ExitStack] = []  # the cluster of our own, if there is one


def disconnect() -> None:
    """End the cluster if it is our own."""
    while _own:
        _own[-1].close()
        _own.pop()


def connected(cpus: int | None = None) -> Any:
    """The module of Ray, connected to the cluster that RAY_ADDRESS names, or to one of our own on
    this machine, which ends with this process and listens on the loopback alone."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not os.environ.get(ADDRESS):
        os.environ.setdefault(ELSEWHERE, "0")
        # Ray lets all others on a machine go first. Here its processes are the run itself.
        os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        with _no_interrupt():
            import ray
    except ModuleNotFoundError as error:
        raise ConfigError(
            "Ray is not installed: pip install 'srpfl[ray]', or take engine='workers'"
        ) from error
    if ray.is_initialized():
        return ray
    address = os.environ.get(ADDRESS)
    check_address()
    try:
        with _our_signals():
            _connect(ray, address, cpus)
    except Exception as error:  # Ray raises many kinds, also a bare Exception
        where = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
        advice = f"check {ADDRESS}" if address else "try again, or take engine='workers'"
        reason = str(error).strip().split("\n")[0]
        if "AuthenticationError" in str(error.__cause__):
            reason, advice = "it wants a token", "set RAY_AUTH_MODE=token, as Ray's manual says"
        raise ConfigError(f"cannot reach {where} ({reason}): {advice}") from error
    return ray


def _connect(ray: Any, address: str | None, cpus: int | None) -> None:
    if address:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        return
    if os.environ.get(ELSEWHERE) == "0":  # which Ray has not seen if the user imported it before
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
    _own.append(contextlib.ExitStack())
    try:
        with _guarded(_own[-1]):
            _own[-1].callback(ray.shutdown)
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address="127.0.0.1",
            )
    except BaseException:
        disconnect()
        raise


@contextlib.contextmanager
def _guarded(end: contextlib.ExitStack) -> Iterator[None]:
    """What is started here ends when we do, however we do."""
    if sys.platform == "win32":  # which has no limits to mark processes with
        yield
        return
    from srpfl.engine.guardian import Guarded

    if not Guarded.possible():
        yield
        return
    guarded = Guarded()
    assert guarded.process.stdin is not None
    ours_alone(guarded.process.stdin)  # a copy elsewhere would keep the cluster alive
    end.callback(guarded.close)
    with guarded.marking():
        yield


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C waits: Ray imported by half fails with many lines when Python ends. It may come to any
    thread, so a mask would not do."""
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        yield
        return
    came = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: came.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came.is_set():
            signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def _our_signals() -> Iterator[None]:
    """Ray takes SIGTERM for a crash of its own, and prints its stack: who ends a run by it gets
    what the run would do without Ray."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def check_address() -> None:
    """Refuse an address at which nobody listens: Ray would try for a minute and then end the whole
    process."""
    address = os.environ.get(ADDRESS, "")
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        return  # Ray's other ways to say it
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot reach the Ray cluster at {address} ({error}): check {ADDRESS}"
        ) from error
