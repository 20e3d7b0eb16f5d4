"""The command that plays a run again, from the options that its folder holds."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

from srpfl.options.config import Config, from_folder
from srpfl.options.settings import spelled

ALWAYS = ("method", "data", "seed")  # said even where they are the usual ones


def command(options: Mapping[str, Any] | None) -> str | None:
    """The command of these options; None where they are not the command's.

    >>> command({"method": "fedrep", "data": "digits", "lr": 0.1, "set": {"algorithm": {"mu": 1}}})
    'srpfl run --method fedrep --data digits --lr 0.1 --set algorithm.mu=1'
    >>> command({"method": "srpfl", "participation": "adaptive"})  # as a folder has it
    'srpfl run --method srpfl --participation auto'
    """
    known = {field.name for field in dataclasses.fields(Config)}
    if not options or not set(options) <= known:
        return None
    options = from_folder(options)
    usual = dataclasses.asdict(Config(data=str(options.get("data", "digits"))))
    words = ["srpfl", "run"]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value == usual[name] and name not in ALWAYS:
            continue
        if name == "set":
            words += [word for setting in spelled(value) for word in (flag, setting)]
        elif isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    return shlex.join(words)
