"""The project's page on PyPI is the README, where links into the repository must be absolute."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|mailto:|#)([^)\s]+)\)")


def absolute(text: str, repository: str) -> str:
    """Markdown whose links and pictures lead to the repository's address."""

    def full(found: re.Match[str]) -> str:
        mark, words, path = found.groups()
        return f"{mark}{words}({repository}/{'raw' if mark else 'blob'}/main/{path})"

    return LINK.sub(full, text)


if __name__ == "__main__":
    from setuptools import setup

    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=absolute(readme, project["urls"]["Repository"]),
        long_description_content_type="text/markdown",
    )
