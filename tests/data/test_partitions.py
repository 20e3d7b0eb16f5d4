"""Who holds what: exact counts, nothing twice, tests that match training, and the seed decides."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srpfl.data import (
    IID,
    Dirichlet,
    Labels,
    LogNormal,
    Partition,
    Parts,
    Shards,
    SlowClasses,
    Writers,
    counts,
    draw,
    load,
)
from srpfl.data.partition import apportion
from srpfl.errors import ConfigError, DataError

WRITER_NAMES = np.array([f"writer {n}" for n in range(30)])


def labels_of(sizes: list[int], tests: int = 100) -> Labels:
    """Shuffled labels with the given numbers of points per class, written by thirty people."""
    rng = np.random.default_rng(0)
    train = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    test = rng.permutation(np.repeat(np.arange(len(sizes)), tests))
    return Labels(
        train,
        test,
        len(sizes),
        rng.choice(WRITER_NAMES, len(train)),
        rng.choice(WRITER_NAMES, len(test)),
    )


def table(labels: np.ndarray, parts: list[np.ndarray], classes: int) -> np.ndarray:
    return np.array([np.bincount(labels[part], minlength=classes) for part in parts])


def tables(labels: Labels, parts: Parts) -> tuple[np.ndarray, np.ndarray]:
    return (
        table(labels.train, parts.train, labels.classes),
        table(labels.test, parts.test, labels.classes),
    )


ALL: list[Partition] = [
    Shards(3),
    Dirichlet(0.5),
    IID(),
    LogNormal(1.0),
    LogNormal(1.0, classes_per_client=3),
    SlowClasses(3, slow=(1, 4, 6, 19)),
    Writers(),
]
EVERY = pytest.mark.parametrize("partition", ALL, ids=str)


@EVERY
def test_no_sample_is_held_twice_and_none_is_made_up(partition: Partition) -> None:
    labels = labels_of([120] * 10)
    parts = partition.deal(labels, 20, seed=3)
    assert len(parts.train) == len(parts.test) == 20
    for pool, rows in ((labels.train, parts.train), (labels.test, parts.test)):
        dealt = np.concatenate(rows)
        assert len(np.unique(dealt)) == len(dealt)
        assert dealt.min() >= 0
        assert dealt.max() < len(pool)


@pytest.mark.parametrize("partition", ALL[:-1], ids=str)
def test_nothing_is_dropped(partition: Partition) -> None:
    labels = labels_of([120, 117, 131, 90, 88, 140, 121, 99, 100, 101])
    train, test = tables(labels, partition.deal(labels, 20, seed=3))
    assert (train.sum(axis=0) == np.bincount(labels.train)).all()
    assert (test.sum(axis=0) == 100).all()


@EVERY
def test_the_seed_decides_and_nothing_else(partition: Partition) -> None:
    labels = labels_of([120] * 10)

    def dealt(seed: int) -> list[list[int]]:
        parts = partition.deal(labels, 20, seed)
        return [part.tolist() for part in [*parts.train, *parts.test]]

    assert dealt(5) == dealt(5)
    assert dealt(5) != dealt(6)


@pytest.mark.parametrize(
    "partition", [Shards(3), LogNormal(1.0, 3), SlowClasses(3, slow=(1, 4, 6, 19))], ids=str
)
def test_clients_are_tested_on_exactly_the_classes_they_train_on(partition: Partition) -> None:
    labels = labels_of([120] * 10)
    train, test = tables(labels, partition.deal(labels, 20, seed=3))
    assert ((train > 0) == (test > 0)).all()
    assert ((train > 0).sum(axis=1) == 3).all()


@given(st.integers(1, 25), st.lists(st.integers(25, 60), min_size=1, max_size=12), st.data())
def test_shards(clients: int, sizes: list[int], data: st.DataObject) -> None:
    each = data.draw(st.integers(1, len(sizes)))
    labels = labels_of(sizes, tests=31)
    parts = Shards(each).deal(labels, clients, seed=data.draw(st.integers(0, 2**32)))
    train, test = tables(labels, parts)
    holders = (train > 0).sum(axis=0)
    assert ((train > 0).sum(axis=1) == each).all()
    assert holders.max() - holders.min() <= 1
    assert ((train > 0) == (test > 0)).all()
    for dealt, points in ((train, np.array(sizes)), (test, np.full(len(sizes), 31))):
        for kind in np.flatnonzero(holders):
            shares = dealt[dealt[:, kind] > 0, kind]
            assert shares.max() - shares.min() <= 1
            assert shares.sum() == points[kind]


def test_shards_are_equal_where_the_numbers_divide() -> None:
    labels = labels_of([5000] * 10, tests=1000)
    train, test = tables(labels, Shards(5).deal(labels, 100, seed=0))
    assert set(train.flat) == {0, 100}
    assert set(test.flat) == {0, 20}


def test_what_does_not_divide_goes_to_those_whom_rounding_cost_most() -> None:
    labels = labels_of([107] * 10, tests=13)
    train, test = tables(labels, Shards(5).deal(labels, 20, seed=0))
    assert np.ptp(train.sum(axis=1)) <= 2
    assert np.ptp(test.sum(axis=1)) <= 2


def test_shards_are_not_always_the_same_blocks() -> None:
    """Complementary halves would be even too; a fair draw has many more combinations."""
    labels = labels_of([100] * 10)
    train, _ = tables(labels, Shards(5).deal(labels, 40, seed=0))
    assert len(np.unique(train > 0, axis=0)) > 25


def test_exactly_as_many_places_as_classes_uses_every_class(
    caplog: pytest.LogCaptureFixture,
) -> None:
    labels = labels_of([50] * 100)
    train, _ = tables(labels, Shards(5).deal(labels, 20, seed=0))
    assert (train.sum(axis=0) == 50).all()
    assert caplog.records == []


def test_fewer_places_than_classes_leaves_classes_out_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    labels = labels_of([50] * 100)
    with caplog.at_level(logging.WARNING, "srpfl"):
        train, _ = tables(labels, Shards(5).deal(labels, 10, seed=0))
    assert np.count_nonzero(train.sum(axis=0)) == 50
    assert "hold 50 of the 100 classes" in caplog.text


def test_a_class_without_points_is_not_dealt() -> None:
    labels = labels_of([40, 0, 40, 40])
    train, _ = tables(labels, Shards(3).deal(labels, 5, seed=0))
    assert (train[:, [0, 2, 3]] == 8).all()


def test_more_shards_than_classes() -> None:
    with pytest.raises(ConfigError, match="11 classes per client are more than the 10 classes"):
        load("digits", partition=Shards(11))


def test_no_shards() -> None:
    with pytest.raises(ConfigError, match="at least one class, not 0"):
        load("digits", partition=Shards(0))


def test_a_class_too_small_for_its_holders() -> None:
    with pytest.raises(DataError, match="class 0 has 3 training points for the 4 clients"):
        Shards(2).deal(labels_of([3, 40]), 4, seed=0)


def test_a_client_without_test_points_is_named() -> None:
    with pytest.raises(DataError, match=r"client \d+ of 400 has no test points: take fewer"):
        load("digits", clients=400, partition=IID())


def test_a_client_without_training_points_is_named() -> None:
    with pytest.raises(DataError, match=r"client \d+ of 1500 has no training points"):
        load("digits", clients=1500, partition=IID())


@given(st.floats(0.02, 100), st.integers(0, 1000))
def test_dirichlet_tests_in_the_proportions_of_training(alpha: float, seed: int) -> None:
    labels = labels_of([200] * 5)
    train, test = tables(labels, Dirichlet(alpha).deal(labels, 8, seed))
    assert (train.sum(axis=0) == 200).all()
    # Half as many test points; rounding moves at most one of either.
    assert np.abs(train / 2 - test).max() <= 1.5


def test_nobody_is_tested_on_a_class_that_rounding_left_them_without() -> None:
    labels = labels_of([10] * 5, tests=200)
    train, test = tables(labels, Dirichlet(0.5).deal(labels, 8, 0))
    assert (train == 0).any()
    assert (test[train == 0] == 0).all()
    assert (test.sum(axis=0) == 200).all()


def test_a_small_alpha_gives_few_classes_and_a_large_one_gives_all() -> None:
    labels = labels_of([600] * 10)
    few, _ = tables(labels, Dirichlet(0.05).deal(labels, 20, 0))
    all_of_them, _ = tables(labels, Dirichlet(1000.0).deal(labels, 20, 0))
    most = few.max(axis=1) / few.sum(axis=1)
    assert np.median(most) > 0.6
    assert np.ptp(all_of_them) <= 15


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_alpha(alpha: float) -> None:
    with pytest.raises(ConfigError, match="alpha must be a positive number"):
        Dirichlet(alpha)


def test_an_alpha_that_underflows_still_deals_everything() -> None:
    labels = labels_of([60] * 10)
    train, _ = tables(labels, Dirichlet(1e-4).deal(labels, 4, 0))
    assert (train.sum(axis=0) == 60).all()


def test_iid_sizes_differ_by_at_most_one() -> None:
    labels = labels_of([101] * 10)
    parts = IID().deal(labels, 7, 0)
    assert {len(part) for part in parts.train} == {144, 145}
    train, _ = tables(labels, parts)
    assert (train > 0).all()


def test_log_normal_sizes() -> None:
    labels = labels_of([40_000])
    parts = LogNormal(0.8).deal(labels, 400, 0)
    logs = np.log([len(part) for part in parts.train])
    # The spread of 400 normal draws lies within 4 standard errors of sigma; sizes are whole.
    assert abs(logs.std() - 0.8) < 4 * 0.8 / np.sqrt(2 * 400) + 0.02
    assert np.ptp([len(p) for p in LogNormal(0.0).deal(labels, 400, 0).train]) == 0


def test_log_normal_shares_of_a_class() -> None:
    labels = labels_of([5000] * 10)
    train, _ = tables(labels, LogNormal(1.0, classes_per_client=5).deal(labels, 20, 0))
    large, small = train.sum(axis=1).argmax(), train.sum(axis=1).argmin()
    both = (train[large] > 0) & (train[small] > 0)
    ratios = train[large][both] / train[small][both]
    assert ratios.min() > 5
    assert np.ptp(ratios) / ratios.mean() < 0.1  # sizes are the client's own, whatever the class


def test_log_normal_leaves_nobody_without_points() -> None:
    labels = labels_of([60], tests=50)
    parts = LogNormal(3.0).deal(labels, 50, 0)
    assert min(map(len, parts.train)) == 1
    assert min(map(len, parts.test)) == 1


def test_an_impossible_sigma() -> None:
    with pytest.raises(ConfigError, match="sigma must be zero or a positive number"):
        LogNormal(-0.5)


def test_slow_classes_live_on_slow_clients_only() -> None:
    slow = (3, 7, 11, 19)
    labels = labels_of([120] * 10)
    train, test = tables(labels, SlowClasses(3, slow=slow).deal(labels, 20, 0))
    fast = np.setdiff1d(np.arange(20), slow)
    for dealt in (train, test):
        only_slow = np.flatnonzero(dealt[fast].sum(axis=0) == 0)
        assert len(only_slow) == 2
        assert (dealt[np.ix_(slow, only_slow)] > 0).all()
    assert ((train > 0).sum(axis=1) == 3).all()


def test_more_slow_classes_than_places_of_a_client() -> None:
    labels = labels_of([120] * 10)
    train, _ = tables(labels, SlowClasses(2, slow=(0, 1, 2), count=5).deal(labels, 10, 0))
    assert np.count_nonzero(train[3:].sum(axis=0) == 0) == 5
    assert (train.sum(axis=0) == 120).all()


@pytest.mark.parametrize(
    ("partition", "sentence"),
    [
        (SlowClasses(3, slow=()), "named as slow"),
        (SlowClasses(3, slow=(20,)), "named as slow"),
        (SlowClasses(3, slow=tuple(range(20))), "named as slow"),
        (SlowClasses(3, slow=(1,), count=4), "cannot be the only holders of 4 classes"),
        (SlowClasses(9, slow=(1, 2)), "the others cannot hold 9 classes each"),
    ],
    ids=str,
)
def test_impossible_slow_classes(partition: SlowClasses, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        partition.deal(labels_of([120] * 10), 20, 0)


def test_a_client_is_one_writer_with_all_that_the_writer_wrote() -> None:
    labels = labels_of([120] * 10)
    assert labels.train_writers is not None
    assert labels.test_writers is not None
    parts = Writers().deal(labels, 12, 0)
    people = []
    for train, test in zip(parts.train, parts.test, strict=True):
        (writer,) = np.unique(labels.train_writers[train])
        assert (np.flatnonzero(labels.train_writers == writer) == train).all()
        assert (np.flatnonzero(labels.test_writers == writer) == test).all()
        people.append(writer)
    assert len(set(people)) == 12


def test_more_clients_than_writers() -> None:
    with pytest.raises(DataError, match="31 clients need as many writers, and 30 have"):
        Writers().deal(labels_of([120] * 10), 31, 0)


def test_data_without_writers() -> None:
    with pytest.raises(ConfigError, match="does not say whose points these are: femnist, "):
        load("digits", partition=Writers())


@given(st.integers(0, 500), st.lists(st.floats(0.001, 10), min_size=1, max_size=20))
def test_apportioned_numbers_add_up_and_are_within_one_of_the_ideal(
    total: int, shares: list[float]
) -> None:
    weights = np.array(shares)
    got = apportion(total, weights)
    assert got.sum() == total
    assert np.abs(got - total * weights / weights.sum()).max() < 1 + 1e-9


@pytest.mark.parametrize("partition", ALL[:-1], ids=str)
def test_every_partition_draws_its_picture(
    partition: Partition, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from PIL import Image

    path = tmp_path_factory.mktemp("pictures") / "partition.png"
    data = load("digits", clients=20, partition=partition)
    assert counts(data).sum() == 1438
    draw(data, path)
    with Image.open(path) as image:
        assert min(image.size) > 200
        colours = image.convert("RGB").getcolors(1 << 20)
    assert colours is not None
    assert len(colours) > 10
