"""The report's page: its parts are files beside this one, put together into a single one.

No library and no server: what a browser needs is in the file, and the file asks for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

SCRIPTS = [
    "draw.js",
    "scales.js",
    "tip.js",
    "state.js",
    "race.js",
    "curves.js",
    "gains.js",
    "table.js",
    "timeline.js",
    "tenths.js",
    "clients.js",
    "histories.js",
    "replay.js",
    "partition.js",
    "settings.js",
    "save.js",
    "live.js",
    "main.js",
]


def page(content: Mapping[str, Any]) -> str:
    """The whole page, as one HTML document."""
    parts = {
        "/*STYLE*/": _part("style.css"),
        "/*SCRIPT*/": "\n".join(_part(name) for name in SCRIPTS),
        # A "</script>" inside a string must not end the element.
        "/*CONTENT*/": json.dumps(content, separators=(",", ":")).replace("<", "\\u003c"),
    }
    whole = _part("page.html")
    for place, part in parts.items():
        whole = whole.replace(place, part, 1)
    return whole


def _part(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
