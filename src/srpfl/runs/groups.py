"""Runs of one method: what they are called, which family they belong to, who waits for everyone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from srpfl.errors import ConfigError
from srpfl.options.methods import METHODS
from srpfl.participation.base import Sampling, checked_start
from srpfl.runs.results import Results

CHOICES = (
    *("algorithm", "participation", "clock", "task", "communication", "rounds"),
    *("data", "model", "pretrained", "precision"),
)
# The task of runs whose config does not say, because they are older than tasks.
CLASSIFICATION = {"kind": "Classification", "metric": "accuracy"}
DEALT = ("partition", "shards", "alpha", "sigma", "augment")  # how data is dealt out
NOTHING = "null"  # what was left open has no place in a name


def groups_of(runs: Sequence[Results]) -> list[str]:
    """The name of each run, with what sets it apart from others of that name: runs that differ in
    nothing but the seed have one name."""
    leaves = _told(runs)
    groups = []
    for run, mine in zip(runs, leaves, strict=True):
        named = [
            values for other, values in zip(runs, leaves, strict=True) if other.name == run.name
        ]
        names = dict.fromkeys(name for values in named for name in values)
        differing = [name for name in names if len({values.get(name) for values in named}) > 1]
        kinds = [name for name in differing if name.endswith("kind")]
        # Another kind of policy brings other fields with it; its name says enough.
        told = [_words(name, mine) for name in differing]
        if kinds:
            told = [mine.get(name, "") for name in kinds]
            same = [v for v in named if all(v.get(name) == mine.get(name) for name in kinds)]
            told += [
                _words(name, mine)
                for name in differing
                if name not in kinds and len({v.get(name) for v in same}) > 1
            ]
        said = list(dict.fromkeys(filter(None, told)))
        groups.append(f"{run.name} ({', '.join(said)})" if said else run.name)
    return groups


def family(run: Results) -> str:
    """The algorithm: methods that differ in nothing but whom they wait for are one family."""
    known = METHODS.get(run.name)
    told = run.config.get("algorithm")
    kind = told.get("kind") if isinstance(told, Mapping) else None
    return known.algorithm.__name__ if known else str(kind or run.name)


def waits(run: Results) -> bool:
    """Whether every round waits for everyone who was asked."""
    told = run.config.get("participation")
    if isinstance(told, Mapping) and "kind" in told:
        return bool(told["kind"] == "Everyone")
    known = METHODS.get(run.name)
    return known is not None and known.participation == "everyone"


def data_of(run: Results) -> str:
    """The data set in words, such as "cifar10, 100 clients".

    Runs on different data are not worth a race.
    """
    data = run.config.get("data")
    if not isinstance(data, Mapping):
        return "unknown data"
    clients = data.get("clients")
    return f"{data.get('name', 'data')}" + (f", {clients} clients" if clients else "")


def leaves(config: Mapping[str, Any]) -> dict[str, str]:
    """The choices that make a run another experiment, by dotted name."""
    found: dict[str, str] = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                walk(f"{name}.{key}", inner)
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value)

    for choice in CHOICES:
        if choice == "task":
            told = {**CLASSIFICATION, **(config.get("task") or {})}
            told.pop("higher_is_better", None)  # it goes with the metric
            walk(choice, told)
        elif choice in config:
            walk(choice, config[choice])
    options = config.get("options")
    if isinstance(options, Mapping):
        for name in DEALT:
            walk(name, options.get(name))
    return found


def _told(runs: Sequence[Results]) -> list[dict[str, str]]:
    """The choices in words that fit a label: a model goes by its name, and those of one name by
    their number."""
    found = [{**leaves(run.config), **_begins(run.config)} for run in runs]
    texts = list(dict.fromkeys(values["model"] for values in found if "model" in values))
    names = [text.split("(")[0].strip()[:40] for text in texts]
    for values in found:
        if "model" in values:
            place = texts.index(values["model"])
            again = names.count(names[place]) > 1
            number = f" {names[: place + 1].count(names[place])}" if again else ""
            values["model"] = names[place] + number
    _number_data(runs, found)
    return found


def _begins(config: Mapping[str, Any]) -> dict[str, str]:
    """How many clients a policy first waits for, where that was left to it: a tenth of them."""
    told, data = config.get("participation"), config.get("data")
    if not isinstance(told, Mapping) or not isinstance(data, Mapping) or told.get("schedule"):
        return {}
    try:
        asked = Sampling(sample=told["sample"]).asked(int(data["clients"]))
    except (ConfigError, KeyError, TypeError, ValueError, OverflowError):
        return {}  # a folder of another kind
    left_open = [name for name in ("start", "n") if told.get(name, 0) is None]
    return {f"participation.{name}": str(checked_start(None, asked)) for name in left_open}


def _number_data(runs: Sequence[Results], found: Sequence[dict[str, str]]) -> None:
    """Two runs of one seed whose choices are alike, on data that are not: without a number for the
    data, they would pass for two seeds."""
    seen: dict[str, list[str]] = {}
    for run, values in zip(runs, found, strict=True):
        alike = json.dumps([run.name, run.config.get("seed"), values], sort_keys=True, default=str)
        data = seen.setdefault(alike, [])
        mark = str(run.config.get("fingerprint"))
        if mark not in data:
            data.append(mark)
        values["data"] = str(data.index(mark) + 1)


def _words(name: str, values: Mapping[str, str]) -> str:
    value = values.get(name, NOTHING)
    return "" if value == NOTHING else f"{name.split('.')[-1]} {value}"
