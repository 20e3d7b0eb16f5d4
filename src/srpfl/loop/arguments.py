"""What :func:`srpfl.simulate` was given, checked at one place: the right things, or one sentence.

Numbers of NumPy become Python's own, so that whatever is written down can be written down.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from itertools import islice
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import nn

from srpfl.errors import ConfigError, check_finite, enough_memory, number, shown, unknown, whole
from srpfl.runs.describe import describe
from srpfl.task import task_of

MOST_ROUNDS = 10_000_000
MOST_EVALUATIONS = 1_000_000
LARGEST_SEED = 2**128
TOO_DEEP = (
    "an option, or a choice that the run is made of, holds itself or is nested too deeply to be "
    "written down"
)

P = ParamSpec("P")
R = TypeVar("R")


def checked(play: Callable[P, R]) -> Callable[P, R]:
    """The function, told only what it can work with."""

    @wraps(play)
    def careful(*args: P.args, **named: P.kwargs) -> R:
        given = bound_arguments(play, *args, **named)
        with enough_memory("this run"):
            return play(**given)  # type: ignore[call-arg]

    return careful


def bound_arguments(play: Callable[..., Any], /, *args: Any, **named: Any) -> dict[str, Any]:
    """All arguments of a call by name, checked."""
    parameters = inspect.signature(play).parameters
    needed = [name for name, one in parameters.items() if one.default is one.empty]
    for name in named:
        if name not in parameters:
            raise unknown(f"argument of {play.__name__}", name, parameters)
    if args or not named.keys() >= set(needed):
        told = ", ".join(f"{name}=..." for name in needed)
        raise ConfigError(f"{play.__name__} takes arguments by name, and needs {told}")
    defaults = {name: one.default for name, one in parameters.items()}
    return checked_arguments({**defaults, **named})


def checked_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, each of its type. What they mean together is checked where it matters."""
    task = given["task"] if given["task"] is not None else task_of(given["data"])
    found = {name: CHECKS[name](value) for name, value in {**given, "task": task}.items()}
    rounds, every = found["rounds"], found["evaluate_every"]
    if every and rounds / every > MOST_EVALUATIONS:
        raise ConfigError(
            f"{rounds // every:,} evaluations are more than {MOST_EVALUATIONS:,}: raise "
            "evaluate_every"
        )
    return found


def _choice(what: str, example: str, needed: Sequence[str], value: Any) -> Any:
    """One of the things that a run is put together from."""
    if isinstance(value, type):
        raise ConfigError(
            f"{what} must be an object such as {example}, not a class: write {value.__name__}(...)"
        )
    missing = [name for name in needed if not hasattr(value, name)]
    if missing and isinstance(value, str) and (made := _by_name(value)):
        raise ConfigError(f"{what} must be an object, not a name: write {what}=srpfl.{made}()")
    if missing:
        partly = f" (it has no '{missing[0]}')" if len(missing) < len(needed) else ""
        raise ConfigError(f"{what} must be an object such as {example}, not {shown(value)}{partly}")
    return _with_plain_numbers(what, value)


def _by_name(text: str) -> str | None:
    """The class of ours that a text seems to mean."""
    import srpfl

    plain = text.casefold().replace("-", "").replace("_", "")
    return next((name for name in srpfl.__all__ if name.casefold() == plain), None)


def _with_plain_numbers(what: str, value: Any) -> Any:
    """A choice with Python's numbers in place of NumPy's, in what it is made of too."""
    if isinstance(value, np.generic):
        value = float(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{what} must be a number, not nan")
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changed = {}
    for field in dataclasses.fields(value):
        old = getattr(value, field.name)
        new = _with_plain_numbers(f"{what}.{field.name}", old)
        if field.init and new is not old:
            changed[field.name] = new
    return dataclasses.replace(value, **changed) if changed else value


def _model(value: Any) -> nn.Module | Callable[[], nn.Module]:
    if isinstance(value, nn.Module):
        return value
    if not callable(value):
        raise ConfigError(
            f"model must be a torch.nn.Module or a function that returns one, not {shown(value)}"
        )
    try:
        inspect.signature(value).bind()
    except TypeError as error:
        raise ConfigError(
            f"model must be a torch.nn.Module or a function without arguments, and "
            f"{getattr(value, '__name__', 'this one')} has a {error}"
        ) from None
    except ValueError:  # one that does not say what it takes
        pass
    made: Callable[[], nn.Module] = value
    return made


def _rounds(value: Any) -> int:
    rounds = whole("rounds", value)
    if rounds < 1:
        raise ConfigError(f"a run has at least one round, not {shown(rounds)}")
    if rounds > MOST_ROUNDS:
        raise ConfigError(f"a run has at most {MOST_ROUNDS:,} rounds, not {shown(rounds)}")
    return rounds


def _seed(value: Any) -> int:
    seed = whole("seed", value)
    if not 0 <= seed < LARGEST_SEED:
        raise ConfigError(
            f"the seed must be zero or a positive number of at most 128 bits, not {shown(seed)}"
        )
    return seed


def _engine(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if hasattr(value, "size"):  # data have `train` and `test` too
        raise ConfigError(f"engine must be a name such as 'auto', or an engine, not {shown(value)}")
    return _choice("engine", "'auto' or an engine", ("train", "test"), value)


def _evaluate_every(value: Any) -> int | None:
    every = None if value is None else whole("evaluate_every", value)
    if every is not None and every < 0:
        raise ConfigError(
            f"evaluate_every must be a number of rounds (0 for never), not {shown(every)}"
        )
    return every


def _evaluate_at(value: Any) -> list[int] | None:
    if value is None:
        return None
    return [whole("evaluate_at", round) for round in _several("evaluate_at", "rounds", value)]


def _evaluate_share(value: Any) -> float | int:
    share = number("evaluate_share", value)
    if isinstance(value, (int, np.integer)):
        share = whole("evaluate_share", value)
    if not share > 0 or (isinstance(share, float) and share > 1):  # NaN is not above 0
        raise ConfigError(
            "evaluate_share must be a fraction of the clients up to 1.0, or a number of them, not "
            f"{shown(value)}"
        )
    return share


def _evaluations(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    kinds = _several("evaluations", "names", value)
    return tuple(_text("an evaluation", kind) for kind in kinds)


def _stop_at(value: Any) -> float | None:
    return None if value is None else number("stop_at", value)


def _checkpoint_every(value: Any) -> int:
    every = whole("checkpoint_every", value)
    if every < 1:
        raise ConfigError(f"checkpoint_every must be at least one round, not {shown(every)}")
    return every


def _yes_or_no(what: str, value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ConfigError(f"{what} must be True or False, not {shown(value)}")


def _out(value: Any) -> Any:
    if value is None:
        return None
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str) or "\0" in text:
        raise ConfigError(f"out must be the path of a folder, not {shown(value)}")
    return value


def _watchers(value: Any) -> tuple[Any, ...]:
    needed = ("setting", "begin", "round", "evaluation", "end")
    return tuple(
        _choice("a watcher", "srpfl.Watcher()", needed, watcher)
        for watcher in _several("watchers", "watchers", value)
    )


def _progress(value: Any) -> bool | None:
    return None if value is None else _yes_or_no("progress", value)


def _several(what: str, kind: str, value: Any) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping, type)) or not isinstance(value, Iterable):
        raise ConfigError(f"{what} must be a list of {kind}, not {shown(value)}")
    try:
        found = list(islice(value, MOST_EVALUATIONS + 1))
    except Exception:  # an array of no dimension, or something that cannot be gone through
        raise ConfigError(f"{what} must be a list of {kind}, not {shown(value)}") from None
    if len(found) > MOST_EVALUATIONS:
        raise ConfigError(f"{what} has more than {MOST_EVALUATIONS:,} {kind}")
    return found


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{what} must be a text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} has characters that cannot be written: {value!a}") from None
    return str(value)


def _name(value: Any) -> str | None:
    return None if value is None else _text("name", value)


def _device(value: Any) -> str:
    return str(value) if isinstance(value, torch.device) else _text("device", value)


def _options(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ConfigError(f"options must be a dict, not {shown(value)}")
    try:
        check_finite("options", value)
    except RecursionError:
        raise ConfigError(TOO_DEEP) from None
    return dict(value)


POLICY = ("needs_fixed_speeds", "wants_gradient", "sees_communication")
CHECKS: dict[str, Callable[[Any], Any]] = {
    "data": partial(
        _choice,
        "data",
        "srpfl.data.load('digits')",
        ("clients", "classes", "transform", "size", "train", "test"),
    ),
    "model": _model,
    "algorithm": partial(
        _choice,
        "algorithm",
        "srpfl.FedRep()",
        ("split", "plans", "client_state", "server_state", "sends", "update", "headline"),
    ),
    "participation": partial(
        _choice, "participation", "srpfl.Everyone()", (*POLICY, "begin", "call", "choose", "learn")
    ),
    "clock": partial(
        _choice, "clock", "srpfl.FixedExponential()", ("communication", "fixed", "times")
    ),
    "task": partial(
        _choice,
        "task",
        "srpfl.Classification()",
        ("metric", "higher_is_better", "loss", "score", "value", "check_labels", "check_outputs"),
    ),
    "rounds": _rounds,
    "seed": _seed,
    "engine": _engine,
    "device": _device,
    "precision": partial(_text, "precision"),
    "evaluate_every": _evaluate_every,
    "evaluate_share": _evaluate_share,
    "evaluate_at": _evaluate_at,
    "evaluations": _evaluations,
    "stop_at": _stop_at,
    "pretrained": partial(_yes_or_no, "pretrained"),
    "out": _out,
    "resume": partial(_yes_or_no, "resume"),
    "checkpoint_every": _checkpoint_every,
    "sync": partial(_yes_or_no, "sync"),
    "watchers": _watchers,
    "progress": _progress,
    "name": _name,
    "options": _options,
}


def plain(value: Any) -> Any:
    """A config as JSON can hold it: NumPy's numbers as Python's, infinity and NaN by name.

    >>> plain({"rate": np.float32(0.5), "cap": math.inf, "hidden": (8, 4)})
    {'rate': 0.5, 'cap': 'inf', 'hidden': [8, 4]}
    """
    try:
        return _finite(describe(value))
    except RecursionError:
        raise ConfigError(TOO_DEEP) from None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
