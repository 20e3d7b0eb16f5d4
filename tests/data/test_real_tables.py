"""The real plays, pupils and sensors, where the machine has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srpfl.data import Pooled, load
from srpfl.data.characters import IGNORED, decode


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests of this file, in all worker processes."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "real-tables"


@pytest.fixture(autouse=True)
def shared_cache(cache: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRPFL_CACHE", str(kept))


def loaded(folder: Path, name: str, **options: Any) -> Pooled:
    if not (folder / name).is_dir():
        pytest.skip(f"no real data: {folder} has no {name}")
    return load(name, data_dir=folder, **options)


def texts(folder: Path) -> dict[str, str]:
    """What each role says, read by hand."""
    import pyarrow.parquet as pq

    speeches: dict[str, list[str]] = {}
    for path in (folder / "shakespeare").glob("*.parquet"):
        for row in pq.read_table(path, columns=["character_id", "text"]).to_pylist():
            speeches.setdefault(row["character_id"], []).append(row["text"])
    return {role: "\n".join(said) for role, said in speeches.items()}


def test_all_that_640_roles_say_is_predicted_once(real_data: Path) -> None:
    data = loaded(real_data, "shakespeare")
    assert data.clients == 640
    predicted = sum(int((pool.y != IGNORED).sum()) for pool in (data.train_pool, data.test_pool))
    said = sum(len(text) for text in texts(real_data).values() if len(text) >= 1000)
    assert predicted == said - 2 * 640  # all but the first character of both parts of each role


def test_hamlet_is_in_the_alphabet(real_data: Path) -> None:
    data = loaded(real_data, "shakespeare", least=61_000)
    assert data.clients == 1
    parts = data.train(0), data.test(0)
    said = [decode(part.x[0, :1]) + decode(part.y.ravel()) for part in parts]
    text = texts(real_data)["hamlet/HAMLET"]
    assert "".join(said) == text
    assert len(said[1]) == len(text) // 5


def test_all_schools(real_data: Path) -> None:
    data = loaded(real_data, "school")
    assert data.clients == 139
    assert sum(len(part) for part in data.train_parts) == 12_293
    assert sum(len(part) for part in data.test_parts) == 3_069
    assert data.train_pool.y.mean() == pytest.approx(20.65, abs=0.01)


def test_school_features_are_standardised_by_the_training_rows(real_data: Path) -> None:
    data = loaded(real_data, "school")
    x = data.transform.prepare(torch.from_numpy(np.array(data.train_pool.x)))
    # The constants have three digits behind the point.
    assert x[:, 3:5].mean(dim=0).abs().max() < 1e-4
    assert (x[:, 3:5].std(dim=0) - 1).abs().max() < 1e-3
    assert set(torch.cat([x[:, :3], x[:, 5:]], dim=1).unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("inputs", ["windows", "features"])
@pytest.mark.parametrize(
    ("split", "train", "test"), [("blocked", 5_755, 1_471), ("random", 5_882, 1_470)]
)
def test_all_persons(real_data: Path, inputs: str, split: str, train: int, test: int) -> None:
    data = loaded(real_data, "har", inputs=inputs, split=split)
    assert data.clients == 21
    assert sum(len(part) for part in data.train_parts) == train
    assert sum(len(part) for part in data.test_parts) == test
    assert all(len(np.unique(data.train(client).y)) == 6 for client in range(21))


def test_windows_are_standardised_by_the_training_windows(real_data: Path) -> None:
    data = loaded(real_data, "har")
    x = data.transform.prepare(torch.from_numpy(np.array(data.train_pool.x)))
    assert x.mean(dim=(0, 2)).abs().max() < 0.005
    assert (x.std(dim=(0, 2)) - 1).abs().max() < 0.005


@pytest.mark.parametrize(("split", "leaks"), [("blocked", False), ("random", True)])
def test_only_the_random_split_tests_on_what_was_trained_on(
    real_data: Path, split: str, leaks: bool
) -> None:
    """Neighbouring windows share half of their samples."""
    data = loaded(real_data, "har", split=split)

    def halves(pool: np.ndarray) -> set[bytes]:
        return {half.tobytes() for window in pool for half in (window[:, :64], window[:, 64:])}

    shared = halves(data.train_pool.x) & halves(data.test_pool.x)
    assert (len(shared) > 0) == leaks
