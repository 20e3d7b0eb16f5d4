"""Tables of Hugging Face's ``datasets``, with a column that says whose row it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srpfl.core.trees import count
from srpfl.data.base import IntArray, Pooled, Samples, Transform
from srpfl.data.checks import is_missing
from srpfl.data.dataset import held_out
from srpfl.data.padded import MASK, Padded
from srpfl.errors import DataError
from srpfl.task.next_token import IGNORE

LABELS = ("label", "labels")
# What models of transformers call their inputs.
INPUTS = ("input_ids", MASK, "token_type_ids", "pixel_values", "input_values", "input_features")
TEST = 0.2


def from_datasets(
    train: Any,
    test: Any = None,
    *,
    client: str,
    label: str | None = None,
    inputs: Sequence[str] | None = None,
    padding: int = 0,
) -> Pooled:
    """Clients from a ``datasets.Dataset``, or from any mapping of columns, as it is.

    ``client`` is the column that says whose row it is. The label's column is ``label`` or
    ``labels``, and inputs are the columns that models of transformers know, unless they are named.
    Rows of different lengths are padded (with ``padding``, the tokenizer's; labels of places with
    -100), with a mask where there is none, and each batch is cut to its longest text. Without test
    rows a fifth of every client's is held out.

    >>> rows = {"user": ["ann", "bob"] * 5, "label": ["yes", "no"] * 5,
    ...         "input_ids": [[7, 8], [9]] * 5}
    >>> data = from_datasets(rows, client="user")
    >>> data.clients, data.classes, data.train(1).x["attention_mask"][0].tolist()
    (2, 2, [1, 0])
    """
    columns = _Columns(train)
    labels = label or next((name for name in LABELS if name in columns.names), LABELS[0])
    names = list(inputs or [name for name in INPUTS if name in columns.names])
    if not names:
        raise DataError(
            f"the rows have no inputs that models know ({', '.join(INPUTS)}): apply the model's "
            "tokenizer first, or name the columns with inputs=[...]"
        )
    tables = [columns] if test is None else [columns, _Columns(test)]
    owners = [np.array([str(who) for who in table.filled(client)]) for table in tables]
    length = {name: max(_longest(table.column(name)) for table in tables) for name in names}
    words = sorted({w for t in tables for w in t.filled(labels) if isinstance(w, str)})
    codes = {word: code for code, word in enumerate(words)}
    places = max(_longest(table.column(labels)) for table in tables)
    pools = []
    for table, own in zip(tables, owners, strict=True):
        x = {name: _padded(table.column(name), length[name], padding, name) for name in names}
        if length.get("input_ids") and MASK not in x:
            x[MASK] = _mask(table.column("input_ids"), length["input_ids"])
        y = table.column(labels)
        if words:
            y = [codes.get(word) if isinstance(word, str) else None for word in y]
            if None in y:
                raise DataError(f"the column '{labels}' holds texts and others: make them one kind")
        if len({count(x), len(y), len(own)}) > 1:
            raise DataError("the columns have different numbers of rows")
        pools.append(Samples(x, _padded(y, places, IGNORE, labels)))
    whose, order = np.unique(owners[0], return_index=True)
    whose = whose[np.argsort(order)]  # in the order in which they come
    if test is None:
        kept, tried = held_out(owners[0], TEST)
        parts = [[rows[owners[0][rows] == who] for who in whose] for rows in (kept, tried)]
        pools = [pools[0], pools[0]]
    else:
        parts = [[np.flatnonzero(own == who) for who in whose] for own in owners]
    held = pools[0].y
    classes = int(held.max()) + 1 if not places and held.dtype.kind in "iu" else 0
    # Labels of places must stay beside their places.
    transform = Transform(scale=False) if places else Padded()
    task = "next-token" if places else "classification"
    (trained, tested), (mine, theirs) = pools, parts
    called = tuple(str(who) for who in whose)
    return Pooled(
        *("datasets", trained, tested, mine, theirs, classes, transform, task),
        names=called,
        labels=tuple(words),
    )


class _Columns:
    """A table by its columns."""

    def __init__(self, table: Any) -> None:
        names = getattr(table, "column_names", None)
        if names is None and isinstance(table, Mapping):
            names = list(table)
        if isinstance(names, dict) or names is None:
            raise DataError(
                "the rows must be a datasets.Dataset or a mapping of columns (of a DatasetDict, "
                "give the splits: from_datasets(rows['train'], rows['test'], ...))"
            )
        self.table, self.names = table, list(names)

    def column(self, name: str) -> list[Any]:
        if name not in self.names:
            raise DataError(
                f"the rows have no column '{name}' (there are: {', '.join(self.names)})"
            )
        values = self.table[name]
        plain = values.tolist() if hasattr(values, "tolist") else list(values)
        if not plain:
            raise DataError("there are no rows")
        return [each.tolist() if hasattr(each, "tolist") else each for each in plain]

    def filled(self, name: str) -> list[Any]:
        """A column without gaps, which would be taken for values."""
        values = self.column(name)
        gap = next((row for row, value in enumerate(values) if is_missing(value)), None)
        if gap is not None:
            raise DataError(
                f"row {gap} has nothing in the column '{name}': fill it in, or leave the row out"
            )
        return values


def _longest(rows: list[Any]) -> int:
    """0 where a row is a number."""
    return max((len(row) if isinstance(row, (list, tuple)) else 0) for row in rows)


def _padded(rows: list[Any], length: int, filler: int, name: str) -> NDArray[Any]:
    try:
        if not length:
            return np.asarray(rows)
        if isinstance(rows[0], (list, tuple)) and rows[0] and isinstance(rows[0][0], (list, tuple)):
            return np.asarray(rows)  # images and the like, all of one size
        # An empty row says nothing of its numbers; one with a point makes all such numbers.
        arrays = [np.asarray(row) for row in rows if len(row)]
        kind = np.result_type(*{array.dtype for array in arrays})
        if kind.kind not in "iufb":
            raise TypeError(f"there is {kind}")
        fill = filler if name in ("input_ids", *LABELS) else 0
        made = np.full((len(rows), length), fill, dtype=kind)
        for place, row in enumerate(rows):
            made[place, : len(row)] = row
        return made
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"the column '{name}' must hold numbers, or lists of numbers, in every row: {error}"
        ) from error


def _mask(rows: list[Any], length: int) -> IntArray:
    there: IntArray = (np.arange(length) < np.array([len(r) for r in rows])[:, None]).astype(int)
    return there
