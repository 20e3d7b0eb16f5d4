"""Decoded once, mapped into memory ever after: arrays on disk, keyed by what they came from."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]

NEEDED = {"x_train", "y_train", "x_test", "y_test"}
FORMAT = 1  # raise it when the same files are to be read differently
log = logging.getLogger("srpfl")


def folder() -> Path:
    """``SRPFL_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("SRPFL_CACHE"):
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "srpfl"
    except RuntimeError:  # a user without a home, as in many containers
        return Path(tempfile.gettempdir()) / "srpfl-cache"


def cached(what: str, files: Sequence[Path], build: Callable[[], Arrays]) -> Arrays:
    """The arrays that ``build`` makes of the files; it is called only if it was not before.

    The key is the content of the files, so a changed file is noticed and a moved one is not
    decoded again. Without a cache that can be written the arrays are simply built every time.
    """
    entry = folder() / f"{what.replace('/', '-')}-{_key(what, files)}"
    try:
        return _load(entry)
    except (OSError, ValueError, EOFError):  # not there, or damaged
        log.info("decoding %s; the next load will find it in the cache", what)
    arrays = build()
    try:
        _store(entry, arrays)
        return _load(entry)
    except (OSError, ValueError) as error:
        log.warning("decoded images cannot be kept in the cache %s: %s", entry.parent, error)
        return arrays


def _key(what: str, files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(f"{FORMAT} {what}".encode(), digest_size=16)
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def _load(entry: Path) -> Arrays:
    # Copy-on-write: nobody can change the file, and PyTorch does not complain of read-only arrays.
    arrays = {
        path.stem: np.load(path, mmap_mode="c", allow_pickle=False) for path in entry.glob("*.npy")
    }
    if not arrays.keys() >= NEEDED:
        raise FileNotFoundError(entry)
    return arrays


def _store(entry: Path, arrays: Arrays) -> None:
    """Write beside the entry, then rename: nobody ever sees half of it."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=entry.parent, prefix=".new-"))
    try:
        for name, array in arrays.items():
            np.save(scratch / f"{name}.npy", array, allow_pickle=False)
        shutil.rmtree(entry, ignore_errors=True)
        try:
            scratch.rename(entry)
        except OSError:
            if not entry.is_dir():  # otherwise another process was quicker, with the same content
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
