"""Next characters by role: what is joined, cut, padded, held out, and who takes part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srpfl.data import IID, Natural, Pooled, Shards, counts, draw, load
from srpfl.data.characters import ALPHABET, IGNORED, TOKENS, decode, encode, windows
from srpfl.errors import ConfigError, DataError

from .made_up import write_parquet, write_shakespeare

ROLES = {
    "hamlet/HAMLET": ["To be, or not to be: " * 2, "that is the question. " * 4],
    "hamlet/OPHELIA": ["Good my lord, " * 5, "How does your honour?"],
    "hamlet/GHOST": ["Mark me."],
}


def shakespeare(folder: Path, **options: object) -> Pooled:
    write_shakespeare(folder, ROLES)
    return load("shakespeare", data_dir=folder, **{"length": 16, "least": 20, **options})  # type: ignore[arg-type]


def said(x: np.ndarray, y: np.ndarray) -> str:
    """The text that windows were cut from: the first character, then all that are predicted."""
    return decode(x[0, :1]) + "".join(decode(piece) for piece in y)


def test_the_alphabet_is_the_73_characters_and_token_0_is_none_of_them() -> None:
    assert TOKENS == 74
    assert sorted(encode(ALPHABET).tolist()) == list(range(1, 74))
    assert encode("é\t€\U0001f600").tolist() == [0, 0, 0, 0]


@given(st.text(ALPHABET, max_size=200), st.integers(1, 50))
def test_windows_predict_every_character_but_the_first_once(text: str, length: int) -> None:
    x, y = windows(encode(text), length)
    assert x.shape == y.shape
    assert x.shape[1] == length
    assert decode(y.ravel()) == text[1:]
    assert (y[x == 0] == IGNORED).all()  # nothing is predicted from padding
    assert (x[:, 1:][y[:, :-1] != IGNORED] == y[:, :-1][y[:, :-1] != IGNORED]).all()


def test_an_unknown_character_is_read_and_not_predicted() -> None:
    x, y = windows(encode("aéb"), 2)
    assert x.tolist() == [[encode("a")[0], 0]]
    assert y.tolist() == [[IGNORED, encode("b")[0]]]


def test_a_roles_speeches_are_joined_in_order_and_its_last_fifth_is_for_tests(
    tmp_path: Path,
) -> None:
    data = shakespeare(tmp_path)
    texts = set()
    for client in range(data.clients):
        train, test = data.train(client), data.test(client)
        texts.add(said(train.x, train.y) + said(test.x, test.y))
        held, kept = len(said(test.x, test.y)), len(said(train.x, train.y))
        assert held == (held + kept) // 5
    assert texts == {"\n".join(ROLES["hamlet/HAMLET"]), "\n".join(ROLES["hamlet/OPHELIA"])}


def test_inputs_and_targets_are_whole_numbers_and_stay_so(tmp_path: Path) -> None:
    import torch

    data = shakespeare(tmp_path)
    train = data.train(0)
    assert train.x.dtype == train.y.dtype == np.int64
    assert train.x.shape[1:] == train.y.shape[1:] == (16,)
    assert (data.classes, data.task) == (0, "next-token")
    tokens = torch.from_numpy(np.array(train.x))
    assert torch.equal(data.transform.prepare(tokens, torch.bfloat16), tokens)


def test_only_roles_with_enough_to_say_take_part(tmp_path: Path) -> None:
    assert shakespeare(tmp_path).clients == 2
    assert shakespeare(tmp_path, least=8).clients == 2  # of eight characters one is for tests
    ophelia = len("\n".join(ROLES["hamlet/OPHELIA"]))
    assert shakespeare(tmp_path, least=ophelia).clients == 2
    assert shakespeare(tmp_path, least=ophelia + 1).clients == 1
    with pytest.raises(DataError, match="3 clients need as many roles of at least 20 characters, "):
        shakespeare(tmp_path, clients=3)
    with pytest.raises(DataError, match="has no role of at least 1000 characters"):
        shakespeare(tmp_path, least=1000)


def test_the_seed_chooses_the_roles(tmp_path: Path) -> None:
    first = {said(*shakespeare(tmp_path, clients=1, seed=seed).train(0))[:4] for seed in range(20)}
    assert first == {"To b", "Good"}


def test_a_cap_keeps_whole_windows_of_the_role(tmp_path: Path) -> None:
    whole, capped = shakespeare(tmp_path), shakespeare(tmp_path, per_client=3)
    for client in range(2):
        assert capped.size(client) == 3
        assert set(capped.train_parts[client]) <= set(whole.train_parts[client])


@pytest.mark.parametrize("partition", [Shards(2), IID()], ids=str)
def test_no_other_partition(tmp_path: Path, partition: Shards | IID) -> None:
    sentence = "its clients are its roles of at least 20 characters, so leave the partition out"
    with pytest.raises(ConfigError, match=sentence):
        shakespeare(tmp_path, partition=partition)
    assert shakespeare(tmp_path, partition=Natural()).clients == 2


def test_the_picture_of_data_without_classes(tmp_path: Path) -> None:
    data = shakespeare(tmp_path)
    assert counts(data).tolist() == [[data.size(0)], [data.size(1)]]
    draw(data, tmp_path / "partition.png")
    assert (tmp_path / "partition.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"length": 0}, "length must be at least one character, not 0"),
        ({"least": -1}, "least must be at least one character, not -1"),
        ({"split": "random"}, "the data set shakespeare has no option 'split': it has length and"),
        ({"classes": 3}, "shakespeare has no classes to choose from"),
    ],
    ids=str,
)
def test_bad_options(tmp_path: Path, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        shakespeare(tmp_path, **options)


def test_other_data_sets_have_no_such_options() -> None:
    with pytest.raises(ConfigError, match="the data set digits has no option 'length'"):
        load("digits", length=64)


def test_lengths_do_not_share_a_cache(tmp_path: Path) -> None:
    assert shakespeare(tmp_path, length=16).train(0).x.shape[1] == 16
    assert shakespeare(tmp_path, length=8).train(0).x.shape[1] == 8


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data folder was given for shakespeare"):
        load("shakespeare")
    with pytest.raises(DataError, match=r"the data folder .*nowhere does not exist"):
        load("shakespeare", data_dir=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no shakespeare in .* it has no train\*.parquet"):
        load("shakespeare", data_dir=tmp_path)
    path = write_parquet(tmp_path / "train.parquet", {"character_id": ["a"], "label": [1]})
    with pytest.raises(DataError, match="has no column 'text': it has character_id, label"):
        load("shakespeare", data_dir=tmp_path)
    write_parquet(path, {"character_id": ["a", None], "text": ["b", "c"]})
    with pytest.raises(DataError, match=r"'character_id' of .* must hold a name in every row"):
        load("shakespeare", data_dir=tmp_path)
    write_parquet(path, {"character_id": ["a", "b"], "text": [1, 2]})
    with pytest.raises(DataError, match=r"'text' of .* must hold text in every row"):
        load("shakespeare", data_dir=tmp_path)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        load("shakespeare", data_dir=tmp_path)
