"""`srpfl theory` and `srpfl linear`: what they print, draw and refuse."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srpfl.cli import app
from srpfl.errors import ConfigError
from srpfl.theory import Assumptions, compare

COMMAND = "import srpfl.cli; srpfl.cli.main()"
QUICK = "linear --clients 16 --start 2 --dim 5 --samples 10 --every 3 --rounds 60"


def printed(command: str) -> str:
    result = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_theory_prints_the_comparison_as_json() -> None:
    answer = json.loads(printed("theory --clients 300 --start 5 --a 0.2 --c 1 --c-hat 1.3 --json"))
    expected = compare(Assumptions(clients=300, start=5, a=0.2, c=1.0, c_hat=1.3))
    assert answer["speedup"] == expected.speedup
    assert answer["srpfl"] == {"time": expected.srpfl.time, "rounds": expected.srpfl.rounds}
    assert answer["fedrep"] == {"time": expected.fedrep.time, "rounds": expected.fedrep.rounds}
    assert answer["epsilon"] == expected.epsilon
    assert answer["bound"] == expected.bound
    assert [set(stage) for stage in answer["stages"]] == [{"n", "rounds", "distance", "time"}] * 7
    assert [stage["n"] for stage in answer["stages"]] == [5, 10, 20, 40, 80, 160, 300]


def test_theory_shows_a_table_and_draws(tmp_path: Path) -> None:
    out = printed(f"theory --clients 256 --plot {tmp_path}/s.png --descent {tmp_path}/d.svg")
    assert "Speed-up: 2.90" in out
    assert (tmp_path / "s.png").stat().st_size > 10_000
    assert (tmp_path / "d.svg").read_text().startswith("<?xml")


def test_linear_prints_both_runs_as_json() -> None:
    answer = json.loads(printed(f"{QUICK} --communication 2 --json"))
    assert set(answer) == {"target", "fedrep", "srpfl"}
    for method in ("fedrep", "srpfl"):
        one = answer[method]
        assert set(one) == {"floor", "time_to_target", "distance", "time"}
        assert len(one["distance"]) == len(one["time"]) == 60
        assert one["floor"] == pytest.approx(math.fsum(one["distance"][-50:]) / 50)
        first = next(i for i, d in enumerate(one["distance"]) if d <= answer["target"])
        assert one["time_to_target"] == one["time"][first]
    assert answer["target"] == pytest.approx(1.2 * answer["fedrep"]["floor"])


def test_the_same_seed_prints_the_same_and_another_does_not() -> None:
    assert printed(f"{QUICK} --json") == printed(f"{QUICK} --seed 0 --json")
    assert printed(f"{QUICK} --json") != printed(f"{QUICK} --seed 1 --json")


def test_several_seeds_print_means() -> None:
    ones = [json.loads(printed(f"{QUICK} --seed {seed} --json")) for seed in (3, 4)]
    both = json.loads(printed(f"{QUICK} --seed 3 --seeds 2 --json"))
    assert both["srpfl"]["floor"] == pytest.approx(sum(o["srpfl"]["floor"] for o in ones) / 2)
    assert both["srpfl"]["time"][-1] == pytest.approx(sum(o["srpfl"]["time"][-1] for o in ones) / 2)


@pytest.mark.parametrize("clock", ["iid", "fixed"])
def test_linear_says_that_the_schedule_loses_where_communication_is_expensive(
    clock: str, tmp_path: Path
) -> None:
    out = printed(f"linear --rounds 160 --clock {clock} --plot {tmp_path}/distance.png")
    assert "At C = 10 and 100 this schedule loses" in out
    assert "over the participants actually used" in " ".join(out.split())
    assert (tmp_path / "distance.png").stat().st_size > 10_000


def test_linear_samples_from_a_larger_population() -> None:
    answer = json.loads(printed(f"{QUICK} --population 80 --json"))
    assert answer["srpfl"]["floor"] < 0.5


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("theory --clients 64 --start 65", "start"),
        ("theory --clients 64 --start 64", "raise clients"),
        ("theory --clients 16", "raise clients"),
        ("theory --a 0.3", "a must"),
        ("theory --a 0", "a must"),
        ("theory --c-hat 1.5", "c_hat"),
        ("theory --c-hat 1", "c_hat"),
        ("theory --plot /no/such/folder/plot.png", "cannot write the plot"),
        (f"{QUICK} --rank 6", "rank"),
        (f"{QUICK} --samples 1", "samples"),
        (f"{QUICK} --start 17", "17"),
        (f"{QUICK} --population 15", "population"),
        (f"{QUICK} --seeds 0", "seeds"),
        (f"{QUICK} --communication -1", "communication"),
        (f"{QUICK} --plot distance.nonsense", "cannot write the plot"),
    ],
)
def test_a_mistake_is_refused_in_one_sentence(command: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as refusal:
        printed(command)
    assert "\n" not in str(refusal.value)


def test_a_mistake_ends_with_the_sentence_and_exit_code_2() -> None:
    result = subprocess.run(
        [sys.executable, "-c", COMMAND, "theory", "--a", "0.3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == "srpfl: a must be above 0 and at most 1/4, not 0.3\n"
    assert result.stdout == ""
