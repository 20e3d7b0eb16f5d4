"""Which files in a folder hold a data set, and in what layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from srpfl.data import cifar_binary, idx, leaf, parquet
from srpfl.data.catalogue import Known
from srpfl.data.points import Points, join
from srpfl.errors import DataError


@dataclass(frozen=True)
class Source:
    """A data set in files of one layout."""

    layout: str
    folder: Path
    train: tuple[Path, ...]
    test: tuple[Path, ...]
    missing: tuple[str, ...] = ()  # names of files that should be there


def find(root: Path, known: Known) -> Source:
    """The one place below ``root`` where the data set is."""
    if not root.is_dir():
        raise DataError(f"the data folder {root} does not exist")
    folders = _folders(root, known)
    found = [
        source
        for folder in folders
        for layout in known.layouts
        if (source := LAYOUTS[layout].find(folder, known)) is not None
    ]
    if len(found) > 1:
        places = " and ".join(f"as {source.layout} in {source.folder}" for source in found)
        raise DataError(
            f"{root} holds {known.name} {places}: give the folder of the one that is meant, or "
            "move the other away"
        )
    if not found:
        raise _nothing_found(root, folders, known)
    (source,) = found
    if source.missing:
        raise DataError(
            f"{source.folder} lacks {', '.join(source.missing)} of {known.name} ({source.layout}): "
            f"{how_to_get(known)}"
        )
    return source


def read(source: Source, known: Known) -> tuple[Points, Points | None]:
    """The training and, where there are files of it, the test split."""
    reader = LAYOUTS[source.layout].read
    return reader(source.train, known), reader(source.test, known) if source.test else None


def how_to_get(known: Known) -> str:
    hub = (
        f", or install srpfl[hub] and give no data folder to download {known.hub}"
        if known.hub
        else ""
    )
    return f"get {known.source}{hub}"


def _folders(root: Path, known: Known) -> list[Path]:
    """Where to look: here, in the usual sub-folders, and in those that the Hub adds."""
    places = [root, *(root / name for name in (known.name, *known.folders))]
    places = [place / inner for place in places for inner in (".", "data", "plain_text")]
    # Resolved and without repeats, for file systems where "mnist" and "MNIST" are one folder.
    seen = {place.resolve(): place for place in reversed(places) if place.is_dir()}
    return [place for place in places if place in seen.values()]


def _nothing_found(root: Path, folders: list[Path], known: Known) -> DataError:
    for folder in folders:
        for name in ("data_batch_1", "cifar-10-batches-py/data_batch_1", "cifar-100-python/train"):
            if "binary" in known.layouts and (folder / name).is_file():
                return DataError(
                    f"{folder / name} is CIFAR's Python version, a pickle, and pickles are never "
                    f"opened because they can run any code: {how_to_get(known)}"
                )
    wanted = " or ".join(LAYOUTS[layout].files(known) for layout in known.layouts)
    return DataError(
        f"no {known.name} in {root}: it has no {wanted}, neither itself nor in a sub-folder "
        f"{' or '.join((known.name, *known.folders))}; {how_to_get(known)}"
    )


def _find_parquet(folder: Path, known: Known) -> Source | None:
    train, test = sorted(folder.glob("train*.parquet")), sorted(folder.glob("test*.parquet"))
    if not (train or test):
        return None
    missing = [] if train else ["train*.parquet"]
    if not test and known.writer is None:  # with writers, a part of each one's rows is held out
        missing.append("test*.parquet")
    return Source("Parquet", folder, tuple(train), tuple(test), tuple(missing))


def _read_parquet(paths: tuple[Path, ...], known: Known) -> Points:
    return join(
        [
            parquet.read(
                path,
                known.name,
                label=known.label,
                writer=known.writer,
                channels=known.channels,
                classes=known.classes,
            )
            for path in paths
        ]
    )


def _idx_names(known: Known) -> list[str]:
    test = "test" if known.prefix else "t10k"
    return [
        f"{known.prefix}{split}-{what}"
        for split in ("train", test)
        for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]


def _find_idx(folder: Path, known: Known) -> Source | None:
    names = _idx_names(known)
    paths = [_plain_or_packed(folder, name) for name in names]
    missing = tuple(name for name, path in zip(names, paths, strict=True) if path is None)
    if len(missing) == len(names):
        return None
    there = [path for path in paths if path is not None]
    return Source("IDX", folder, tuple(there[:2]), tuple(there[2:]), missing)


def _plain_or_packed(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def _read_idx(paths: tuple[Path, ...], known: Known) -> Points:
    images, labels = paths
    return idx.read(images, labels, known.name, classes=known.classes, transposed=known.transposed)


def _binary_names(known: Known) -> tuple[list[str], list[str]]:
    if known.classes == 100:
        return ["train.bin"], ["test.bin"]
    return [f"data_batch_{number}.bin" for number in range(1, 6)], ["test_batch.bin"]


def _find_binary(folder: Path, known: Known) -> Source | None:
    train, test = ([folder / name for name in names] for names in _binary_names(known))
    missing = tuple(path.name for path in [*train, *test] if not path.is_file())
    if len(missing) == len(train) + len(test):
        return None
    return Source("binary", folder, tuple(train), tuple(test), missing)


def _read_binary(paths: tuple[Path, ...], known: Known) -> Points:
    return join([cifar_binary.read(path, known.name, classes=known.classes) for path in paths])


def _find_leaf(folder: Path, known: Known) -> Source | None:
    train, test = (sorted((folder / split).glob("*.json")) for split in ("train", "test"))
    if not (train or test):
        return None
    missing = [f"{s}/*.json" for s, paths in (("train", train), ("test", test)) if not paths]
    return Source("LEAF", folder, tuple(train), tuple(test), tuple(missing))


def _read_leaf(paths: tuple[Path, ...], known: Known) -> Points:
    return join([leaf.read(path, known.name, classes=known.classes) for path in paths])


@dataclass(frozen=True)
class _Layout:
    find: Callable[[Path, Known], Source | None]
    read: Callable[[tuple[Path, ...], Known], Points]
    files: Callable[[Known], str]  # what to look for, in words


LAYOUTS = {
    "Parquet": _Layout(_find_parquet, _read_parquet, lambda _: "train*.parquet"),
    "IDX": _Layout(_find_idx, _read_idx, lambda known: f"{_idx_names(known)[0]}[.gz]"),
    "binary": _Layout(_find_binary, _read_binary, lambda known: _binary_names(known)[0][0]),
    "LEAF": _Layout(_find_leaf, _read_leaf, lambda _: "train/*.json"),
}
