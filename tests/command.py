"""The command in a folder: in this process, which saves importing PyTorch each time, or in one of
its own where that is what is tested."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

from srpfl.cli import main


def srpfl(
    *arguments: str, cwd: Path, fails: bool = False, process: bool = False
) -> subprocess.CompletedProcess[str]:
    done = (_process if process else _here)(arguments, cwd)
    assert "Traceback" not in done.stderr
    assert (done.returncode != 0) == fails, done.stderr
    return done


def _process(arguments: tuple[str, ...], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "srpfl", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _here(arguments: tuple[str, ...], cwd: Path) -> subprocess.CompletedProcess[str]:
    out, err, code, before = io.StringIO(), io.StringIO(), 0, set(sys.modules)
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("sys.argv", ["srpfl", *arguments]),
        mock.patch("sys.path", list(sys.path)),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")  # a user sees them, and the command goes on
        warnings.showwarning = _shown
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    for name in set(sys.modules) - before:  # what is in the folder is another's next time
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(cwd):
            del sys.modules[name]
    return subprocess.CompletedProcess(list(arguments), code, out.getvalue(), err.getvalue())


def _shown(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
    """As Python shows warnings, where pytest would collect them."""
    print(warnings.formatwarning(message, category, filename, lineno), file=sys.stderr)
