"""A run's config.json and partition.json, written and read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from srpfl.errors import ConfigError, RunFolderError
from srpfl.runs.describe import describe
from srpfl.runs.files import CONFIG, PARTITION, read_bytes
from srpfl.runs.records import are_numbers
from srpfl.runs.seal import digest, opened, parsed, seal

Counts = Sequence[Sequence[int]]

# What every run's config has, no matter who wrote it.
ALWAYS = {
    "name": (str,),
    "headline": (str,),
    "communication": (int, float),
    "seed": (int,),
    "rounds": (int,),
    "data": (dict,),
}
# What it may have, or nothing in its place: older ones and deployments have less.
SOMETIMES = {
    "sees_communication": bool,
    **dict.fromkeys(("algorithm", "participation", "clock", "task", "options"), dict),
}
SUMS = ("sums", "sum")  # what a config says of itself and its neighbour


def read_config(folder: Path) -> dict[str, Any]:
    """What a run's config says, with its checksums."""
    path = folder / CONFIG
    try:
        data = read_bytes(path)
        plain: dict[str, Any] = parsed(data)
    except FileNotFoundError:
        raise RunFolderError(f"{folder} holds no run (there is no {CONFIG})") from None
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot read {path}: {error}") from error
    if not _is_config(plain):
        raise RunFolderError(f"{path} is damaged: it is not the config of a run")
    version = plain.get("format", 1)
    try:
        opened(data, needed=version >= 3 or "sum" in plain)
    except ValueError as error:
        raise RunFolderError(
            f"{path} is not what was written ({error}): put the original back, or play the run "
            "again in another folder"
        ) from None
    return plain


def _is_config(told: Any) -> bool:
    """Whether every entry that readers rely on is there and of its type."""
    return (
        isinstance(told, dict)
        and all(type(told.get(name)) in kinds for name, kinds in ALWAYS.items())
        and all(type(told.get(n)) in (kind, type(None)) for n, kind in SOMETIMES.items())
        and type(told["data"].get("clients")) is int
        and type(told.get("format", 1)) is int
        and _all(int, told.get("evaluate_at", []))
        and _all(str, told.get("evaluations", []))
        and are_numbers([told.get("stop_at") or 0, told["communication"]])
        and _not_finite(told) is None
    )


def _all(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def config_text(config: Mapping[str, Any], counts: Counts | None, *, sealed: bool) -> str:
    """A config as it is written, or a sentence that says what cannot be."""
    told = describe(config)
    if wrong := _not_finite(told):
        raise ConfigError(f"'{wrong}' must be a number, not NaN or infinity")
    if sealed and counts is not None:
        told["sums"] = {PARTITION: digest(counts_text(counts).encode())}
    try:
        text = json.dumps(told, indent=2, allow_nan=False) + "\n"
    except ValueError as error:  # a number of thousands of digits
        raise ConfigError(f"the run's {CONFIG} cannot be written: {error}") from error
    return seal(text) if sealed else text


def _not_finite(value: Any, name: str = "") -> str | None:
    """The name of a number that JSON has no word for."""
    if isinstance(value, float) and not math.isfinite(value):
        return name
    inner: Any = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found = (_not_finite(item, f"{name}.{key}".lstrip(".")) for key, item in inner)
    return next(filter(None, found), None)


def counts_text(counts: Counts) -> str:
    return json.dumps(counts) + "\n"


def are_counts(row: Any) -> bool:
    return isinstance(row, list) and are_numbers(row)
