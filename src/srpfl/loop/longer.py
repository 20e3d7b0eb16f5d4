"""A run that is over can be made longer: its folder's config and the new one may differ in that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LENGTH = ("rounds", "evaluate_at")
OPTIONS = ("rounds", "every")  # a stage is as long as it was; its length is said now


def due_of_longer(held: Mapping[str, Any], rounds: int, due: frozenset[int]) -> frozenset[int]:
    """The rounds to evaluate after: those of the folder, and the new ones after its end.

    >>> sorted(due_of_longer({"rounds": 4, "evaluate_at": [2, 4]}, 9, frozenset({3, 6, 9})))
    [2, 4, 6, 9]
    """
    before, there = held["rounds"], frozenset(held.get("evaluate_at", ()))
    if rounds > before:
        return there | {round for round in due if round > before}
    return there if rounds == before and due and due < there else due


def as_long_as(held: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The config, with the length of the folder's if it asks for more rounds than that."""
    if config["rounds"] <= held["rounds"]:
        return dict(config)
    same = {**config, **{name: held[name] for name in LENGTH}}
    options, asked = held.get("options"), config.get("options")
    if isinstance(options, Mapping) and isinstance(asked, Mapping):
        same["options"] = {**asked, **{name: options.get(name) for name in OPTIONS}}
    return same


def lengthened(held: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The folder's config with the length of the other; all else stays as it was written."""
    longer = {**held, **{name: config[name] for name in LENGTH}}
    options, asked = held.get("options"), config.get("options")
    if isinstance(options, Mapping) and isinstance(asked, Mapping):
        longer["options"] = {**options, **{name: asked.get(name) for name in OPTIONS}}
    return longer
