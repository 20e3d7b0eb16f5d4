"""Whom speed-ups are over, which target they are to, and what that comes to in a sentence."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

import made_up

from srpfl.cli.compare import show
from srpfl.cli.words import fitted
from srpfl.errors import ConfigError
from srpfl.runs.clients import fairness
from srpfl.runs.comparison import compare
from srpfl.runs.race import Finish, break_even, gains
from srpfl.runs.run import Run
from srpfl.runs.verdict import verdict


def nine() -> list[Run]:
    """The weakest first, as the alphabet may have it."""
    weak = [made_up.run(name, first=0.02) for name in ("fedavg", "flanp")]
    return [*weak, made_up.run("fedrep"), made_up.run("mine", first=0.1), made_up.run("srpfl")]


def test_the_target_is_that_of_the_reference_pair_and_not_of_the_weakest() -> None:
    found = compare(nine())
    assert (found.baseline, found.against) == ("fedrep", "srpfl")
    assert found.target == compare([made_up.run("fedrep"), made_up.run("srpfl")]).target
    assert found.target_origin == "5 % short of the best that fedrep and srpfl both reached"
    assert found.caution == ""


def test_every_speed_up_is_over_the_one_baseline() -> None:
    found = compare(nine(), communication=(0,), target=0.6)
    rows = {row.method: row for row in found.rows}
    base = rows["fedrep"].time_to_target[0]
    assert base is not None
    assert rows["fedrep"].speedup == {0: None}
    for name in ("flanp", "mine", "srpfl"):
        time = rows[name].time_to_target[0]
        assert time is not None
        assert rows[name].speedup[0] == pytest.approx(base / time)
    other = compare(nine(), communication=(0,), target=0.6, baseline="fedavg")
    assert (other.baseline, other.against) == ("fedavg", "flanp")
    with pytest.raises(ConfigError, match="unknown baseline 'fedrap': did you mean 'fedrep'"):
        compare(nine(), baseline="fedrap")


def test_a_target_far_below_the_best_run_is_named() -> None:
    found = compare(nine(), target=0.4)
    assert found.target_origin == "given"
    assert "far from the best run (fedrep: 91.0 %)" in found.caution or "90.9 %" in found.caution


def test_a_run_without_an_evaluation_is_named() -> None:
    """One that diverged at once, among many: which is it?"""
    bare = dataclasses.replace(made_up.run("ditto"), evaluations=[])
    with pytest.raises(ConfigError, match=r"nothing was evaluated yet in ditto: leave that out"):
        compare([*nine(), bare])
    kept = dataclasses.replace(bare, folder=Path("runs/seventh"))
    with pytest.raises(ConfigError, match=r"in ditto, runs.seventh:"):
        compare([bare, kept])


def test_other_data_are_not_another_seed() -> None:
    """Choices and seed are the same, and only the fingerprint tells that the data are not."""
    runs = [made_up.run("fedrep", seed=seed) for seed in (0, 0, 1, 1)]
    for run, mark in zip(runs, "abcd", strict=True):
        run.config["fingerprint"] = mark
    rows = compare(runs).rows
    assert [(row.method, row.seeds) for row in rows] == [
        ("fedrep (data 1)", [0, 1]),
        ("fedrep (data 2)", [0, 1]),
    ]
    runs[1].config["fingerprint"], runs[3].config["fingerprint"] = "a", "c"
    assert [row.seeds for row in compare(runs).rows] == [[0, 0, 1, 1]]


def test_different_kinds_of_accuracy_are_named() -> None:
    runs = [made_up.run(name) for name in ("fedrep", "ditto")]
    runs[1].config["headline"] = "local"
    runs[1].evaluations[:] = [
        dataclasses.replace(record, kind="local") for record in runs[1].evaluations
    ]
    found = compare(runs)
    assert "not the same for all (personalised: fedrep; local: ditto)" in found.caution
    assert found.caution in repr(found)


def test_seeds_have_means_and_deviations() -> None:
    runs = [made_up.run(name, seed=seed) for name in ("fedrep", "srpfl") for seed in (0, 1, 2)]
    row = compare(runs, communication=(0,)).rows[1]
    alone = [compare([runs[k], runs[3 + k]], communication=(0,)).rows for k in range(3)]
    times = [rows[1].time_to_target[0] for rows in alone]
    ratios = [rows[1].speedup[0] for rows in alone]
    assert row.time_to_target[0] == pytest.approx(sum(times) / 3)
    middle = sum(ratios) / 3
    assert row.speedup_spread[0] == pytest.approx(
        (sum((ratio - middle) ** 2 for ratio in ratios) / 3) ** 0.5
    )


def test_break_even_is_where_both_take_the_same_time() -> None:
    slow, fast = [Finish(100, 10), Finish(120, 12)], [Finish(20, 30), Finish(30, 36)]
    turn = break_even(slow, fast)
    assert turn is not None
    assert sum(each.time(turn) for each in slow) == pytest.approx(
        sum(each.time(turn) for each in fast)
    )
    assert break_even(slow, [Finish(20, 5)]) is None  # it is faster at every C


def test_the_verdict_is_one_sentence() -> None:
    runs = [made_up.run("fedrep"), made_up.run("srpfl")]
    late = dataclasses.replace(runs[0], evaluations=runs[0].evaluations[4:], rounds=runs[0].rounds)
    early = [
        dataclasses.replace(record, value=record.value + 0.25) for record in late.evaluations
    ]  # fewer rounds to the target, each of them long
    fedrep = dataclasses.replace(late, evaluations=early)
    found = compare([fedrep, runs[1]], communication=(0, 100), target=0.7)
    said = verdict(found)
    assert said.startswith("srpfl reaches 70.0 % accuracy ")
    assert " times sooner than fedrep at C = 0 and " in said
    assert " times later at C = 100; break-even near C = " in said
    turn = found.rows[1].break_even
    assert turn is not None
    equal = compare([fedrep, runs[1]], communication=(turn,), target=0.7)
    assert equal.rows[1].speedup[turn] == pytest.approx(1)
    assert "as soon as fedrep" in verdict(equal)


@pytest.mark.parametrize("width", range(24, 100, 4))
def test_no_line_of_a_verdict_ends_inside_a_value(width: int) -> None:
    said = (
        "srpfl reaches 89.7 % accuracy 5.8 times sooner than fedrep at C = 0, 1.4 times later at "
        "C = 10 and 1.9 times later at C = 100; break-even near C = 4.1."
    )
    lines = fitted(said, width).splitlines()
    assert " ".join(lines) == said
    assert max(map(len, lines)) <= width
    for value in ("89.7 %", "5.8 times", "C = 0,", "C = 10 ", "C = 100;", "C = 4.1."):
        assert any(value in f"{line} " for line in lines), value


@pytest.mark.parametrize(
    ("target", "says"),
    [(0.99, "Neither fedrep nor srpfl reaches 99.0 % accuracy."), (0.5, "sooner than fedrep")],
)
def test_the_verdict_of_what_is_not_reached(target: float, says: str) -> None:
    runs = [made_up.run("fedrep"), made_up.run("srpfl")]
    assert says in verdict(compare(runs, target=target))
    assert verdict(compare(runs[:1], target=target)) == ""
    weak = made_up.run("srpfl", first=0.0)
    assert (
        verdict(compare([runs[0], weak], target=0.8))
        == "srpfl does not reach 80.0 % accuracy; fedrep does."
    )


def test_where_lower_is_better_everything_turns_round() -> None:
    runs = [made_up.run(name, metric="rmse") for name in ("fedrep", "srpfl")]
    points = gains([runs[0]], [runs[1]], 0)
    targets = [target for target, _ in points]
    assert targets == sorted(targets, reverse=True)
    assert all(each.speedup > 1 for _, each in points)
    assert verdict(compare(runs)).startswith("srpfl reaches RMSE 10.41 ")


def test_who_is_left_behind() -> None:
    run = made_up.run(rounds=5, clients=10, start=2)  # only the two fastest are ever heard
    values = [float(client) / 10 for client in range(10)]
    last = dataclasses.replace(run.evaluations[-1], clients=values)
    found = fairness(dataclasses.replace(run, evaluations=[last]))
    heard = set(run.rounds[0].participants)
    assert found.worst == 0.0
    assert compare([dataclasses.replace(run, evaluations=[last])]).rows[0].worst_tenth == 0.0
    assert found.heard == pytest.approx(sum(values[c] for c in heard) / 2)
    assert found.unheard == pytest.approx((4.5 - sum(values[c] for c in heard)) / 8)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_over_seeds_fit_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = ("fedrep", "srpfl", "lg-fedavg")
    runs = [made_up.run(name, seed=seed, clients=50) for name in names for seed in range(5)]
    show(compare(runs), Path("accuracy.png"), folders=["runs/demo"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    cells = [[cell.strip() for cell in line.split("│")] for line in lines if "│" in line]
    numbers = [cell for row in cells for cell in row[2:-1]]
    assert len(numbers) > 15
    # What takes two lines leaves empty cells; at 60 columns a ± may.
    assert all(numbers) or width == 60
