"""Settings: how they are written, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from srpfl.errors import ConfigError
from srpfl.options.command import command
from srpfl.options.config import Config
from srpfl.options.settings import settings, spelled


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x=1", 1),
        ("x=1.5", 1.5),
        ("x=.5", 0.5),
        ("x=1e-3", 0.001),
        ("x=true", True),
        ("x=False", False),
        ("x=null", None),
        ("x=[1, 2]", [1, 2]),
        ("x=(1, 2)", [1, 2]),
        ('x={"a": 1}', {"a": 1}),
        ("x={a = 1}", {"a": 1}),
        ('x="3"', "3"),
        ("x=fast", "fast"),
        ("x=a=b", "a=b"),
        ("x=2024-01-01", "2024-01-01"),  # JSON has no dates
        ("x=1\ny=2", "1\ny=2"),
        ("x=nan", "nan"),  # which would not be equal to itself on resume
        ("x=", ""),
    ],
)
def test_a_value_is_what_toml_json_or_python_would_make_of_it(text: str, value: object) -> None:
    assert settings([text]) == {"algorithm": {"x": value}}
    assert type(settings([text])["algorithm"]["x"]) is type(value)  # type: ignore[index]


@pytest.mark.parametrize("value", [1, 0.1, True, None, "fast", "3", "true", "a=b", [1, "x"], ""])
def test_what_is_spelled_out_is_read_back(value: object) -> None:
    given = {"model": {"x": value}, "algorithm": {"y": value}}
    assert settings(spelled(given)) == given


def test_a_table_and_a_list_of_texts_say_the_same(tmp_path: Path) -> None:
    table, texts = tmp_path / "table.toml", tmp_path / "texts.toml"
    table.write_text("[set]\nmu = 0.1\n[set.participation]\nk = 5\nbest-of = [1, 2]\n")
    texts.write_text('set = ["mu=0.1", "participation.k=5", "participation.best-of=[1, 2]"]\n')
    expected = {"algorithm": {"mu": 0.1}, "participation": {"k": 5, "best_of": [1, 2]}}
    for file in (table, texts):
        assert Config.from_file(file, {}).set == expected


def test_the_command_line_comes_before_the_file_one_setting_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('algorithm = "mine:Ditto"\n[set.algorithm]\nmu = 1\nnu = 2\n')
    assert Config.from_file(file, {"set": ["nu=3"]}).settings("algorithm") == {"mu": 1, "nu": 3}
    # Another algorithm does not get the settings of the file's.
    assert Config.from_file(file, {"algorithm": "FedRep"}).set is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["mu"], "cannot read the setting 'mu' in the options: write it as KEY=VALUE"),
        (["=1"], "cannot read the setting '=1'"),
        (["algorithm.=1"], "cannot read the setting 'algorithm.=1'"),
        (["algoritm.mu=1"], "'algoritm': did you mean 'algorithm'?"),
        ({"model": 3}, "'set.model' in the options must be a table, not 3"),
        ({"x": float("nan")}, "the setting 'algorithm.x' in the options must be a number"),
        (3, "must be a table such as [set.algorithm], or a list of texts"),
    ],
)
def test_a_setting_that_cannot_be_read_is_one_sentence(given: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(given)
    assert sentence in str(error.value)


def test_the_command_of_a_run_names_what_is_unusual() -> None:
    config = Config(data="har", clip=2.0, augment=False, set={"data": {"split": "random"}})
    options = {"method": config.method, "data": config.data, "seed": config.seed}
    options |= {name: getattr(config, name) for name in ("partition", "clip", "augment", "set")}
    assert command(options) == (
        "srpfl run --method srpfl --data har --seed 0 --clip 2.0 --no-augment "
        "--set data.split=random"
    )
    shards = command({"data": "har", "partition": "shards"})
    assert shards == "srpfl run --data har --partition shards"
    assert command({"something": "else"}) is None
    assert command(None) is None
