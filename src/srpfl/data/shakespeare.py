"""Shakespeare's plays by role: predict the next character of what one's own role says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from srpfl.data.base import IntArray, Transform
from srpfl.data.cache import Arrays, cached
from srpfl.data.characters import encode, windows
from srpfl.data.dataset import Dataset
from srpfl.data.named import arrays_of, dataset_of
from srpfl.data.points import Points
from srpfl.data.tables import Columns, Table
from srpfl.errors import ConfigError, DataError

TABLE = Table(
    "shakespeare",
    "train*.parquet",
    "the plays from https://github.com/TheMITTech/shakespeare as a table with a row per speech, in "
    "order, and the columns character_id and text",
)


@dataclass(frozen=True, kw_only=True)
class Shakespeare:
    """Roles of at least ``least`` characters, their text in pieces of ``length``.

    A role's speeches are joined in the order of the play. The last fifth of its text is for tests,
    so no test character is ever trained on, neither as an input nor as a target.
    """

    length: int = 64
    least: int = 1000

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("least", self.least)):
            if value < 1:
                raise ConfigError(f"{name} must be at least one character, not {value}")

    def read(self, data_dir: str | Path | None) -> Dataset:
        files = TABLE.find(data_dir)
        what = f"shakespeare-{self.length}-{self.least}"
        arrays = cached(what, files, lambda: self._build(files))
        dataset = dataset_of("shakespeare", arrays, classes=0, transform=Transform(scale=False))
        who = f"roles of at least {self.least} characters"
        return replace(dataset, who=who, natural=True, task="next-token")

    def _build(self, files: list[Path]) -> Arrays:
        columns = Columns(files, ["character_id", "text"])
        speeches: dict[str, list[str]] = {}
        rows = zip(columns.words("character_id"), columns.text("text"), strict=True)
        for role, speech in rows:
            speeches.setdefault(str(role), []).append(speech)
        texts = {role: encode("\n".join(said)) for role, said in speeches.items()}
        texts = {role: text for role, text in texts.items() if len(text) >= self.least}
        if not texts:
            raise DataError(f"{columns.where} has no role of at least {self.least} characters")
        cut = {role: len(text) - len(text) // 5 for role, text in texts.items()}
        return arrays_of(
            self._points({role: text[: cut[role]] for role, text in texts.items()}),
            self._points({role: text[cut[role] :] for role, text in texts.items()}),
        )

    def _points(self, texts: dict[str, IntArray]) -> Points:
        pieces = [windows(text, self.length) for text in texts.values()]
        x, y = (np.concatenate(side) for side in zip(*pieces, strict=True))
        return Points(x, y, np.repeat(np.array(list(texts)), [len(x) for x, _ in pieces]))
