"""The documentation's build: `make docs`. Nothing is fetched, and a broken link is an error."""

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import srpfl

project = "srpfl"
copyright = "the srpfl authors"
version = release = srpfl.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "srpfl"
html_static_path = ["static"]
html_css_files = ["site.css"]

# Headings can be linked to, as on GitHub.
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block", "html_image"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}

# Fields of the same name in several classes; none of them is meant to be a link.
suppress_warnings = ["ref.python"]

copybutton_prompt_text = "$ "


def command_reference(app: Any) -> None:
    """Write commands.md: what every command says with --help."""
    from typer.main import get_command

    from srpfl.cli import COMMANDS, main
    from srpfl.cli import app as program

    command: Any = get_command(program)
    text = "# Command reference\n\nWhat `srpfl COMMAND --help` says.\n"
    names = [["srpfl"], *(["srpfl", n] for group in COMMANDS.values() for n in group)]
    operate = [["srpfl", "deploy", name] for name in command.commands["deploy"].commands]
    for words in [*names, *operate]:
        out = io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.suppress(SystemExit),
            mock.patch("sys.argv", [*words, "--help"]),
            mock.patch.object(sys.modules["__main__"], "__package__", None),  # or it is "sphinx"
            mock.patch.dict(os.environ, COLUMNS="92", NO_COLOR="1"),
        ):
            main()
        lines = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
        text += f"\n## {' '.join(words)}\n\n```text\n{lines.strip()}\n```\n"
    file = Path(app.srcdir) / "commands.md"
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def setup(app: Any) -> None:
    app.connect("builder-inited", command_reference)
