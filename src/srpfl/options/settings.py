"""Settings of the choices: ``--set participation.k=5`` on the command line, and in a file."""

from __future__ import annotations

import ast
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from srpfl.errors import ConfigError, unknown

CHOICES = ("algorithm", "participation", "clock", "task", "model", "data")  # what can be set
USUAL = "algorithm"  # whose a setting is that does not say

Settings = dict[str, dict[str, Any]]  # by choice, then by name


def settings(given: Any, source: str = "the options") -> Settings | None:
    """From texts such as "algorithm.mu=0.1", or from a file's table.

    >>> settings(["mu=0.1", "participation.k=5"])
    {'algorithm': {'mu': 0.1}, 'participation': {'k': 5}}
    >>> settings({"algorithm": {"mu": 0.1}, "warm": True})
    {'algorithm': {'mu': 0.1, 'warm': True}}
    """
    if given is None:
        return None
    if isinstance(given, str):
        given = [given]
    found: Settings = {}
    for choice, name, value in _entries(given, source):
        if choice not in CHOICES:
            raise unknown(f"choice in the settings of {source}", choice, CHOICES)
        if not _plain(value):
            raise ConfigError(
                f"the setting '{choice}.{name}' in {source} must be a number, a text, true or "
                f"false, or a list or table of these, not {value}"
            )
        found.setdefault(choice, {})[name.replace("-", "_")] = value
    return found or None


def merged(first: Settings | None, second: Settings | None) -> Settings | None:
    """Both; where they differ, the second counts."""
    both = {**(first or {})}
    for choice, values in (second or {}).items():
        both[choice] = {**both.get(choice, {}), **values}
    return both or None


def spelled(given: Settings | None) -> list[str]:
    """Settings as the command line has them.

    >>> spelled({"algorithm": {"mu": 0.1, "kind": "fast", "size": "3"}})
    ['algorithm.mu=0.1', 'algorithm.kind=fast', 'algorithm.size="3"']
    """
    return [
        f"{choice}.{name}={_spelled(value)}"
        for choice, values in (given or {}).items()
        for name, value in values.items()
    ]


def _entries(given: Any, source: str) -> Iterator[tuple[str, str, Any]]:
    """Whose, which and what."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            if isinstance(value, Mapping):
                yield from ((name, inner, each) for inner, each in value.items())
            elif name in CHOICES:
                raise ConfigError(f"'set.{name}' in {source} must be a table, not {value!r}")
            else:
                yield USUAL, name, value
    elif isinstance(given, list) and all(isinstance(text, str) for text in given):
        for text in given:
            key, sign, value = text.partition("=")
            choice, dot, name = key.strip().partition(".")
            if not (sign and choice and (name or not dot)):
                raise ConfigError(
                    f"cannot read the setting '{text}' in {source}: write it as KEY=VALUE, such as "
                    "algorithm.mu=0.1"
                )
            yield (choice, name, _value(value)) if dot else (USUAL, choice, _value(value))
    else:
        raise ConfigError(
            f"'set' in {source} must be a table such as [set.algorithm], or a list of texts such "
            f"as 'algorithm.mu=0.1', not {given!r}"
        )


def _value(text: str) -> Any:
    """A value as TOML, JSON or Python spell it; whatever is none of these is text.

    >>> [_value(text) for text in ("0.1", "true", "null", "[1, 2]", "False", ".5", "fast", "1.0.0")]
    [0.1, True, None, [1, 2], False, 0.5, 'fast', '1.0.0']
    """
    text = text.strip()
    for reader in (_toml, json.loads, ast.literal_eval):
        try:
            value = reader(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        value = list(value) if isinstance(value, tuple) else value
        return value if _plain(value) else text
    return text


def _toml(text: str) -> Any:
    found = tomllib.loads(f"value = {text}")
    if found.keys() != {"value"}:  # there was more than one line
        raise ValueError(text)
    return found["value"]


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) and _value(value) == value else json.dumps(value)


def _plain(value: Any) -> bool:
    """Whether a run's config.json can hold the value, and give it back."""
    if isinstance(value, list):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(isinstance(name, str) and _plain(item) for name, item in value.items())
    if isinstance(value, float):
        return not math.isnan(value)
    return value is None or isinstance(value, (bool, int, str))
