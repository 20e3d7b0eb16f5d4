"""Data that you have already, as clients: arrays, a table, datasets of PyTorch, the Hub.

Each function returns data for :func:`srpfl.simulate`. Where a test part is not given, a fifth of
every client's samples is held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from srpfl.core.trees import Tree, count, gathered, leaves, mapped
from srpfl.data import hugging_face
from srpfl.data.base import IntArray, Pooled, Samples, Transform
from srpfl.data.checks import check_form, is_missing, shapes
from srpfl.data.dataset import held_out
from srpfl.data.loading import load
from srpfl.errors import ConfigError, DataError, shown

if TYPE_CHECKING:
    from srpfl.data.partition import Partition

HELD_OUT = 0.2
IMAGES = 3  # dimensions from which on bytes are taken to be images
TEXT = "OSU"  # kinds of arrays that hold texts


def from_arrays(
    x: Tree,
    y: Any,
    client: Any,
    *,
    test: float | Any = 0.2,
    transform: Transform | None = None,
    name: str = "arrays",
) -> Pooled:
    """Samples with a column that says whose each is.

    ``x`` is an array or tensor with a row for each sample (or a tuple or dict of such), ``y`` their
    labels, ``client`` a name or number for each row. ``test`` is the fraction of every client's
    rows to hold out, or an array that is true for the rows to test on. Labels that are whole
    numbers or texts are classes; other numbers are for ``task=srpfl.Regression()``. Images of bytes
    are scaled to [0, 1] unless a transform says otherwise.

    Clients are numbered in the order of their names, which ``data.names`` keeps; ``data.labels``
    keeps the names of classes.

    >>> data = from_arrays(np.ones((6, 2)), [0, 1, 0, 1, 0, 1], list("aaabbb"), test=0.34)
    >>> data
    <Pooled arrays: 2 clients, 4 training samples, 2 classes>
    >>> data.names, data.size(0), data.train(0).x.dtype
    (('a', 'b'), 2, dtype('float32'))
    """
    x = mapped(_numbers, x)
    labels, classes, task, meaning = _labels(_filled(y, "label"))
    owners = _filled(client, "client")
    rows = count(x)
    for what, values in (("y", labels), ("client", owners)):
        if len(values) != rows:
            raise DataError(f"x has {rows} rows and {what} has {len(values)}: they must be equal")
    if not rows:
        raise DataError("there are no samples")
    if owners.ndim != 1:
        raise DataError("client must be one name or number for each row of x")
    names, numbers = np.unique(_sortable(owners), return_inverse=True)
    train, tested = _parts(numbers, names, test)
    pool = Samples(x, labels)
    chosen = transform if transform is not None else Transform(scale=_are_images(x))
    called = tuple(str(each) for each in names)
    return Pooled(name, pool, pool, train, tested, classes, chosen, task, called, meaning)


def from_frame(
    frame: Any,
    *,
    client: str,
    label: str,
    features: Sequence[str] | None = None,
    test: float | str = 0.2,
    name: str = "frame",
) -> Pooled:
    """A table of pandas (or polars): a row for each sample.

    ``client`` names the column that says whose a row is, ``label`` the column to predict, and
    ``features`` the columns to predict it from (all others by default). ``test`` is the fraction of
    every client's rows to hold out, or a column that is true for the rows to test on.

    >>> import pandas
    >>> table = pandas.DataFrame({"who": list("aabb"), "size": [1, 2, 3, 4], "kind": [0, 1, 0, 1]})
    >>> data = from_frame(table, client="who", label="kind", test=0.5)
    >>> data.clients, data.train(0).x.shape
    (2, (1, 1))
    """
    if not hasattr(frame, "columns"):
        raise DataError(
            f"from_frame takes a data frame, not {shown(frame)}: read a file with pandas.read_csv, "
            "or make one with pandas.DataFrame"
        )
    columns = [str(column) for column in frame.columns]
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise DataError(f"the table has several columns '{twice}': rename or drop all but one")
    mark = [test] if isinstance(test, str) else []
    wanted = [*(features or ()), client, label, *mark]
    if missing := [column for column in wanted if column not in columns]:
        raise DataError(
            f"the table has no column '{missing[0]}': it has {', '.join(columns)[:200]}"
        )
    chosen = list(features) if features else [c for c in columns if c not in (client, label, *mark)]
    if not chosen:
        raise DataError("the table has no columns to predict from")
    x = np.stack([_column(frame, column) for column in chosen], axis=1)
    held: Any = np.asarray(frame[test]) if isinstance(test, str) else test
    return from_arrays(x, np.asarray(frame[label]), np.asarray(frame[client]), test=held, name=name)


def from_datasets(
    datasets: Any,
    test: Any = None,
    *,
    client: str | None = None,
    transform: Transform | None = None,
    name: str = "datasets",
    **columns: Any,
) -> Pooled:
    """A list of PyTorch's datasets, one for each client; or one table with a column of clients.

    **A list**: anything with a length and samples ``(x, y)``. ``test`` is a list with a test
    dataset for each client, or the fraction to hold out (a fifth). The samples are read once, and
    kept in memory; for data that do not fit, write a class with the six members of
    :class:`srpfl.data.Federated`.

    **A table**: a ``datasets.Dataset`` of Hugging Face, or any mapping of columns. ``client`` is
    the column that says whose row it is; ``label``, ``inputs`` and ``padding`` are those of
    :func:`srpfl.data.hugging_face.from_datasets`.

    >>> pairs = [[(torch.ones(3), 0), (torch.zeros(3), 1)] for _ in range(4)]
    >>> from_datasets(pairs, test=0.5).clients
    4
    """
    if client is not None:
        return hugging_face.from_datasets(datasets, test, client=client, **columns)
    if columns or not isinstance(datasets, Sequence):
        raise ConfigError(
            "from_datasets takes a list with a dataset for each client, or a table with "
            "client='COLUMN'"
        )
    held = HELD_OUT if test is None else test
    if isinstance(held, Sequence) and len(held) != len(datasets):
        raise DataError(f"there are {len(datasets)} clients and {len(held)} test datasets")
    if not datasets or any(not len(each) for each in datasets):
        raise DataError("every client needs a dataset with at least one sample")
    parts = [*datasets, *(held if isinstance(held, Sequence) else [])]
    # A client may have a test dataset without samples.
    read = {place: _read(each) for place, each in enumerate(parts) if len(each)}
    for place, samples in read.items():
        check_form(shapes(samples), place % len(datasets), shapes(read[0]), 0)
    places = np.repeat(list(read), [len(y) for _, y in read.values()])
    clients = places % len(datasets)
    if isinstance(held, Sequence):
        held = places >= len(datasets)
    x = gathered(np.concatenate, [x for x, _ in read.values()])
    y = np.concatenate([y for _, y in read.values()])
    return from_arrays(x, y, clients, test=held, transform=transform, name=name)


def from_hub(repository: str, *, partition: Partition | None = None, **options: Any) -> Pooled:
    """Images of a dataset on the Hugging Face Hub, as :func:`load` deals them out.

    The repository must hold Parquet files with images and labels (and a column ``writer_id`` or
    ``client_id`` for ``partition=srpfl.data.Natural()``). Further options are those of
    :func:`load`, such as ``clients`` and ``seed``. Needs ``pip install 'srpfl[hub]'``.
    """
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError as error:
        raise ConfigError("the Hub needs its package: pip install 'srpfl[hub]'") from error
    try:
        place = snapshot_download(repository, repo_type="dataset", allow_patterns=["*.parquet"])
    except Exception as error:  # no network, no such repository, no permission
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{repository} could not be downloaded from the Hub ({reason}): check its name and the "
            "network, or read files that are here with srpfl.data.load('parquet:PATH')"
        ) from error
    return load(f"parquet:{Path(place)}", partition=partition, **options)


def _array(values: Any) -> NDArray[Any]:
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().numpy()
    if np.ma.is_masked(values):
        raise DataError("there are masked values: fill them in, or leave their rows out")
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of several lengths
        raise DataError(
            "the samples have different lengths: fill the shorter ones up to the longest first"
        ) from error


def _filled(values: Any, what: str) -> NDArray[Any]:
    """A column without gaps. A gap would be taken for a client, or a class, of its own."""
    array = _array(values)
    if array.ndim == 1:  # a list may hold what is a text once it is an array
        each = values if isinstance(values, (list, tuple)) else array.tolist()
        gap = next((row for row, value in enumerate(each) if is_missing(value)), None)
        if gap is not None:
            raise DataError(f"row {gap} has no {what}: fill it in, or leave the row out")
    return array


def _numbers(values: Any) -> NDArray[Any]:
    array = _array(values)
    if not array.ndim:
        raise DataError(f"x must have a row for each sample, not {shown(values)}")
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype.kind in TEXT:
        raise DataError(
            f"inputs must be numbers, not {shown(array.flat[0])}: turn texts into numbers first"
        )
    return array


def _column(frame: Any, column: str) -> NDArray[Any]:
    values = np.asarray(frame[column])
    if values.dtype.kind not in "fiub":
        raise DataError(
            f"the column '{column}' must hold numbers, not {shown(values[0])}: leave it out of "
            "features, or turn it into numbers first"
        )
    numbers = values.astype(np.float32)
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        raise DataError(
            f"the column '{column}' has no number in row {row}: fill it or leave it out"
        )
    return numbers


def _labels(y: NDArray[Any]) -> tuple[NDArray[Any], int, str, tuple[str, ...]]:
    """Labels, how many classes there are, the task that they are usually for, and what classes are
    called."""
    if y.ndim == 1 and y.dtype.kind in TEXT:
        known, codes = np.unique(y.astype(str), return_inverse=True)
        return codes.astype(np.int64), len(known), "classification", tuple(map(str, known))
    if y.ndim == 1 and y.dtype.kind in "iub":
        whole = y.astype(np.int64)
        if len(whole) and whole.min() < 0:
            raise DataError(f"classes are numbered from 0 on, and y has {whole.min()}")
        return whole, int(whole.max()) + 1 if len(whole) else 0, "classification", ()
    return y.astype(np.float32) if y.dtype == np.float64 else y, 0, "regression", ()


def _sortable(owners: NDArray[Any]) -> NDArray[Any]:
    return owners.astype(str) if owners.dtype.kind == "O" else owners


def _parts(
    number: NDArray[np.intp], names: NDArray[Any], test: Any
) -> tuple[list[IntArray], list[IntArray]]:
    """The rows that each client trains and tests on, from the number of each row's client."""
    rows = len(number)
    if isinstance(test, (int, float)):
        if not 0 < test < 1:
            raise ConfigError(f"test is the fraction of rows to hold out, not {test}")
        train, tested = held_out(number.astype(np.int64), float(test))
    else:
        mark = _array(test)
        if mark.shape != (rows,) or not np.isin(mark, (False, True)).all():
            raise DataError(
                f"test must say of each of the {rows} rows whether it is for tests, by true or "
                "false (or 1 or 0)"
            )
        mark = mark.astype(bool)
        train, tested = np.flatnonzero(~mark), np.flatnonzero(mark)
    clients = range(len(names))
    parts = [[np.asarray(r[number[r] == c]) for c in clients] for r in (train, tested)]
    if empty := [client for client in clients if not len(parts[0][client])]:
        who = names[empty[0]]
        raise DataError(f"client {who} has no training rows: hold out fewer, or leave it out")
    return parts[0], parts[1]


def _read(dataset: Any) -> Samples:
    """All samples of a dataset, as arrays."""
    samples = [dataset[place] for place in range(len(dataset))]
    if any(not isinstance(sample, (tuple, list)) or len(sample) != 2 for sample in samples):
        raise DataError("a sample of a dataset must be a pair (x, y)")
    return Samples(gathered(_stack, [x for x, _ in samples]), _stack([y for _, y in samples]))


def _stack(values: list[Any]) -> NDArray[Any]:
    arrays = [_array(each) for each in values]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) > 1:
        raise DataError(
            f"a dataset has samples of the shapes {shapes[0]} and {shapes[-1]}: make them one "
            "shape first, for example by padding them"
        )
    return np.stack(arrays)


def _are_images(x: Tree) -> bool:
    return all(array.dtype == np.uint8 and array.ndim >= IMAGES for array in leaves(x))
