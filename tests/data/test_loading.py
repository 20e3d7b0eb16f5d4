"""Names, subsets and caps; and what importing must not import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from srpfl.data import Dirichlet, Partition, Shards, counts, load
from srpfl.data.digits import digits


def test_the_default_is_fifty_clients_with_three_digits_each() -> None:
    data = load("digits")
    assert data.clients == 50
    assert data.classes == 10
    assert ((counts(data) > 0).sum(axis=1) == 3).all()
    assert sum(len(part) for part in data.train_parts) == 1438
    assert sum(len(part) for part in data.test_parts) == 359


def test_digits_are_vectors_from_0_to_1() -> None:
    data = load("digits")
    x = data.train(0).x
    assert x.dtype == np.float32
    assert x.shape[1:] == (64,)
    assert float(data.train_pool.x.min()) == 0  # type: ignore[attr-defined]
    assert float(data.train_pool.x.max()) == 1  # type: ignore[attr-defined]


def test_digits_are_scikit_learns_whether_its_file_is_read_or_itself_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = digits()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    asked = digits()
    assert (read.train.x == asked.train.x).all()
    assert (read.train.y == asked.train.y).all()
    assert (read.test.x == asked.test.x).all()


def test_digits_are_split_alike_in_every_class_and_every_time() -> None:
    one, two = digits(), digits()
    assert (one.train.x == two.train.x).all()
    fraction = np.bincount(one.test.y) / (np.bincount(one.train.y) + np.bincount(one.test.y))
    assert (np.abs(fraction - 0.2) < 0.003).all()


def test_the_test_points_do_not_depend_on_the_seed() -> None:
    one, two = load("digits", seed=0), load("digits", seed=1)
    assert (one.test_pool.x == two.test_pool.x).all()


@pytest.mark.parametrize("classes", [3, [7, 0, 9], range(4, 7), np.array([2, 4, 6])], ids=str)
def test_some_classes_only(classes: object) -> None:
    kept = [0, 1, 2] if isinstance(classes, int) else [int(kind) for kind in classes]  # type: ignore[attr-defined]
    data = load("digits", clients=5, partition=Shards(2), classes=classes)  # type: ignore[arg-type]
    everything = digits()
    assert data.classes == 3
    for new, old in enumerate(kept):
        expected = everything.train.x[everything.train.y == old]
        assert (data.train_pool.x[data.train_pool.y == new] == expected).all()


@pytest.mark.parametrize("partition", [Shards(3), Dirichlet(0.5)], ids=str)
def test_a_cap_keeps_the_mix_of_classes(partition: Partition) -> None:
    whole = counts(load("digits", clients=10, partition=partition))
    capped = counts(load("digits", clients=10, partition=partition, per_client=40))
    assert (capped.sum(axis=1) == 40).all()
    assert ((capped > 0) == (whole > 0)).all()
    assert (capped <= whole).all()
    # In proportion, but for the one point that even the smallest class keeps.
    ideal = 40 * whole / whole.sum(axis=1, keepdims=True)
    assert (np.abs(capped - ideal) <= 1 + (whole > 0).sum(axis=1, keepdims=True) / 4).all()


def test_a_cap_leaves_small_clients_and_test_points_alone() -> None:
    whole = load("digits", clients=10, partition=Dirichlet(0.1))
    capped = load("digits", clients=10, partition=Dirichlet(0.1), per_client=120)
    for client in range(10):
        assert capped.size(client) == min(120, whole.size(client))
        assert (capped.test_parts[client] == whole.test_parts[client]).all()


def test_a_cap_keeps_every_class_while_it_can() -> None:
    data = load("digits", clients=4, partition=Dirichlet(0.3), per_client=10)
    whole = load("digits", clients=4, partition=Dirichlet(0.3))
    assert ((counts(data) > 0) == (counts(whole) > 0)).all()


def test_importing_imports_nothing_heavy() -> None:
    heavy = "sklearn", "matplotlib", "pandas", "pyarrow", "PIL", "huggingface_hub"
    code = f"import sys, srpfl.data; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
