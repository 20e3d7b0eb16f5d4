"""Decoded once, mapped into memory ever after: arrays on disk, keyed by what they came from."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srpfl.errors import DataError

Arrays = Mapping[str, NDArray[Any]]

NEEDED = {"x_train", "y_train", "x_test", "y_test"}
SUMS = "checksums.json"
FORMAT = 1  # raise it when the same files are to be read differently
log = logging.getLogger("srpfl")


def folder() -> Path | None:
    """``SRPFL_CACHE``, or the user's cache folder. Without a home there is none: a place that
    everybody knows, as in /tmp, could be filled by anybody."""
    if chosen := os.environ.get("SRPFL_CACHE"):
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "srpfl"
    except RuntimeError:  # a user without a home, as in many containers
        return None


def cached(what: str, files: Sequence[Path], build: Callable[[], Arrays]) -> Arrays:
    """The arrays that ``build`` makes of the files; it is called only if it was not before.

    The key is the content of the files, so a changed file is noticed and a moved one is not
    decoded again. What is kept is compared with the checksums that were kept with it, and decoded
    again if it is damaged. Without a cache that can be written the arrays are simply built every
    time.
    """
    place = folder()
    key = _key(what, files)
    if place is None:
        log.info("decoding %s; there is no home for a cache, and SRPFL_CACHE can name one", what)
        return build()
    entry = place / f"{what.replace('/', '-')}-{key}"
    try:
        return _load(entry)
    except FileNotFoundError:
        log.info("decoding %s; the next load will find it in the cache", what)
    except (OSError, ValueError, EOFError) as error:
        log.warning("the cache %s is damaged (%s): %s is decoded again", entry, error, what)
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
        if not path.is_file():  # a pipe would never end
            raise DataError(f"{path} is not a file")
        try:
            digest.update(_digest(path))
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


_whole: set[tuple[str, str, int, int, int, int]] = set()  # files that this process has compared


def _check(path: Path, expected: str) -> None:
    """Compare a file with its checksum, once in a process unless it is written to in between."""
    state = path.stat()
    if not path.is_file():  # a device or a pipe would never end
        raise ValueError(f"{path.name} is not a file")
    seen = str(path), expected, state.st_size, state.st_ino, state.st_mtime_ns, state.st_ctime_ns
    if seen in _whole:
        return
    if _digest(path).hex() != expected:
        raise ValueError(f"{path.name} is not what was kept")
    _whole.add(seen)


def _load(entry: Path) -> Arrays:
    if not entry.is_dir():
        raise FileNotFoundError(entry)
    try:
        if not (entry / SUMS).is_file():
            raise ValueError
        sums = json.loads((entry / SUMS).read_text())
    except (OSError, ValueError, RecursionError):
        raise ValueError("it has no checksums") from None
    if not isinstance(sums, dict) or not sums.keys() >= NEEDED:
        raise ValueError("its checksums are not those of a data set")
    arrays = {}
    for name, expected in sums.items():
        path = entry / f"{Path(name).name}.npy"
        try:
            _check(path, expected)
        except FileNotFoundError:
            raise ValueError(f"{path.name} is missing") from None
        # Copy-on-write: nobody can change the file, and PyTorch does not complain of read-only
        # arrays.
        arrays[name] = np.load(path, mmap_mode="c", allow_pickle=False)
    return arrays


def _store(entry: Path, arrays: Arrays) -> None:
    """Write beside the entry, then rename: nobody ever sees half of it."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=entry.parent, prefix=".new-"))
    try:
        for name, array in arrays.items():
            np.save(scratch / f"{name}.npy", array, allow_pickle=False)
        sums = {name: _digest(scratch / f"{name}.npy").hex() for name in arrays}
        (scratch / SUMS).write_text(json.dumps(sums) + "\n")
        shutil.rmtree(entry, ignore_errors=True)  # a damaged one
        try:
            scratch.rename(entry)
        except OSError:
            if not entry.is_dir():  # otherwise another process was quicker, with the same content
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
