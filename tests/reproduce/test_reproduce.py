"""The paper's grid in tiny form, on the embedded digits (real images: tests/data)."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from scipy.stats import ttest_1samp

from srpfl.errors import ConfigError, RunFolderError, SrpflError
from srpfl.reproduce import TRAININGS, Panel, check, grid, train, write
from srpfl.reproduce.findings import claims_table, found_in
from srpfl.reproduce.grid import evaluated, place
from srpfl.reproduce.page import CLAIMS, faults
from srpfl.reproduce.paired import Paired, paired
from srpfl.reproduce.summary import COSTS, Row
from srpfl.runs.folder import ROUNDS
from srpfl.runs.run import Run

NOTE = {"command": "srpfl reproduce fig3 ...", "trained": 7, "device": "a test", "seconds": 1.0}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    _, trained = train(Panel("fig3", "digits", rounds=2, clients=10), out)
    assert trained == len(TRAININGS)
    write(out, "fig3", NOTE)
    return out


def test_seven_trainings_give_nine_curves(results: Path) -> None:
    table = json.loads((results / "fig3" / "table.json").read_text())["digits"]
    assert [row["method"] for row in table] == [
        "fedavg",
        "fedavg-ft",
        "flanp",
        "flanp-ft",
        "fedrep",
        "srpfl",
        "lg-fedavg",
        "lg-srpfl",
        "hf-maml",
    ]
    assert all(row["speedup"].keys() == {"0", "10", "100"} for row in table if row["speedup"])
    assert (results / "fig3" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert len((results / "fig3" / "table.csv").read_text().splitlines()) == 10


def test_a_second_call_trains_nothing_and_writes_the_same(results: Path) -> None:
    before = (results / "fig3" / "table.json").read_bytes()
    left = results / "fig3" / "digits" / "srpfl-seed0" / "checkpoints" / "000002"
    left.mkdir(parents=True)  # as of a command that was killed while it removed the weights
    _, trained = train(Panel("fig3", "digits", rounds=2, clients=10), results)
    assert trained == 0
    assert not left.parent.exists()
    write(results, "fig3", None)
    assert (results / "fig3" / "table.json").read_bytes() == before


def test_finished_runs_keep_records_and_no_weights(results: Path) -> None:
    for folder in (results / "fig3" / "digits").iterdir():
        assert not (folder / "checkpoints").exists()
        assert (folder / ROUNDS).exists()


def test_a_run_that_was_stopped_is_finished_later(tmp_path: Path) -> None:
    panel = Panel("fig5", "digits", methods=("srpfl",), rounds=2, clients=10)
    assert train(panel, tmp_path, deadline=0.0)[1] == 0  # long past: nothing is begun
    assert train(panel, tmp_path)[1] == 1
    folder = tmp_path / "fig5" / "digits" / "srpfl-seed0"
    lines = (folder / ROUNDS).read_text().splitlines(keepends=True)
    (folder / ROUNDS).write_text(lines[0])
    assert train(panel, tmp_path)[1] == 1
    assert (folder / ROUNDS).read_text().splitlines(keepends=True) == lines


def test_runs_that_are_trained_together_are_those_trained_in_turn(
    results: Path, tmp_path: Path
) -> None:
    panel = Panel("fig3", "digits", methods=("fedrep", "srpfl"), rounds=2, clients=10, seeds=2)
    done = place(tmp_path, "fig3", next(panel.configs()))
    shutil.copytree(results / "fig3" / "digits" / "fedrep-seed0", done)
    runs, trained = train(panel, tmp_path, together=3, engine="vectorised", device="cpu")
    assert trained == 3
    assert [(run.name, run.config["seed"]) for run in runs] == [
        ("fedrep", 0),
        ("srpfl", 0),
        ("fedrep", 1),
        ("srpfl", 1),
    ]
    in_turn = Run.load(results / "fig3" / "digits" / "srpfl-seed0")
    assert [r.arrivals for r in runs[1].rounds] == [r.arrivals for r in in_turn.rounds]
    assert [r.loss for r in runs[1].rounds] == pytest.approx([r.loss for r in in_turn.rounds])
    assert train(panel, tmp_path, together=3)[1] == 0


def test_a_run_that_fails_is_named_after_the_others_are_through(
    tmp_path: Path,
) -> None:
    panel = Panel("fig3", "digits", methods=("fedrep", "srpfl"), rounds=2, clients=10)
    taken = place(tmp_path, "fig3", next(panel.configs()))
    taken.mkdir(parents=True)
    (taken / "notes.txt").write_text("this folder is used for something else")
    with pytest.raises(SrpflError, match="fedrep-seed0 is not empty"):
        train(panel, tmp_path, together=2)
    assert len(Run.load(taken.parent / "srpfl-seed0").rounds) == 2


def test_true_results_pass_and_false_ones_are_named(results: Path, tmp_path: Path) -> None:
    assert check(results) == []
    copy = tmp_path / "copy"
    shutil.copytree(results, copy)
    table = copy / "fig3" / "table.json"
    table.write_text(table.read_text().replace("fedrep", "fedwrong"))
    assert [text for text in check(copy) if "table.json does not follow from the records" in text]
    assert check(copy) == []  # it was rebuilt
    (copy / CLAIMS).unlink()
    assert check(copy) == [f"{copy / CLAIMS} does not follow from the records"]
    folder = copy / "fig3" / "digits" / "srpfl-seed0"
    lines = (folder / ROUNDS).read_text().splitlines(keepends=True)
    (folder / ROUNDS).write_text(lines[0])
    assert any("srpfl is claimed for seeds [0]" in text for text in check(copy))


def line(method: str, final: float, speedup: float | None = None) -> Row:
    gains = {f"{cost:g}": speedup for cost in COSTS}
    times: dict[str, float | None] = {f"{cost:g}": 1.0 for cost in COSTS}
    return Row(method, [0], final, 0.0, 0.5, times, gains, times, slow_half=final, fast_half=0.7)


def test_each_claim_is_listed_once_with_the_panels_where_it_holds_and_where_not() -> None:
    good = found_in([line("fedrep", 0.7), line("srpfl", 0.72, 3.0)])
    bad = found_in([line("fedrep", 0.7), line("srpfl", 0.68, 0.5)], {"srpfl": Paired(3, 0.01, 0.2)})
    none = found_in([line("fedrep", 0.7), line("srpfl", 0.7)])
    rows = list(claims_table({"a": good, "b": bad, "c": none}))[2:]
    assert rows == [
        "| srpfl is faster than fedrep, C = 0 | a 3.0x | b 0.5x | c |",
        "| srpfl ends where fedrep ends, or above (to half a point) | a +2.00; c +0.00 "
        "| b -2.00 ± 1.00 (3 seeds, p = 0.20) |  |",
        "| a high cost of communication hurts srpfl |  | a 3.0x to 3.00x; b 0.5x to 0.50x | c |",
        "| slow clients are not worse off under srpfl | a +2.00; c +0.00 | b -2.00 |  |",
    ]


@pytest.mark.parametrize("differences", [[1.0, 2.0, 4.0], [0.3, -0.2, 0.5, 0.1, -0.4]])
def test_a_paired_difference_has_the_p_value_of_the_t_test(differences: list[float]) -> None:
    expected = ttest_1samp(differences, 0.0).pvalue
    assert paired(differences).p == pytest.approx(expected, abs=1e-4)


def test_a_clock_that_does_not_follow_from_the_arrivals_is_a_fault(results: Path) -> None:
    run = Run.load(results / "fig3" / "digits" / "fedrep-seed0")
    assert faults(run) == []
    first, *rest = run.rounds
    wrong = dataclasses.replace(run, rounds=[dataclasses.replace(first, duration=0.5), *rest])
    assert any("the clock of round" in text for text in faults(wrong))


def test_the_headline_pair_is_evaluated_every_second_round_up_to_60() -> None:
    assert evaluated("srpfl", 150) == [*range(2, 61, 2), *range(70, 151, 10)]
    assert evaluated("fedavg", 7) == [5, 7]
    assert evaluated("fedrep", 2) == [2]


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown figure 'fig9'"):
        Panel("fig9", "digits")
    with pytest.raises(ConfigError, match="unknown training 'srpfi': did you mean 'srpfl'"):
        Panel("fig3", "digits", methods=("srpfi",))


def test_a_run_that_diverges_is_a_result_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "MAML_BETA", 1e9)
    alone = Panel("fig3", "digits", methods=("hf-maml",), rounds=2, clients=10)
    assert train(alone, tmp_path) == ([], 1)
    with pytest.raises(RunFolderError, match="no finished runs; hf-maml-seed0 diverged: client"):
        write(tmp_path, "fig3", NOTE)
    panel = Panel("fig3", "digits", methods=("hf-maml", "fedavg"), rounds=2, clients=10)
    runs, trained = train(panel, tmp_path)
    assert ([run.name for run in runs], trained) == (["fedavg"], 1)
    assert train(panel, tmp_path)[1] == 0
    write(tmp_path, "fig3", NOTE)
    assert "hf-maml-seed0 **diverged**: client" in (tmp_path / "fig3" / "README.md").read_text()
    assert check(tmp_path) == []
    (tmp_path / "fig3" / "digits" / "hf-maml-seed0" / grid.DIVERGED).unlink()
    assert any("does not name the runs that diverged" in text for text in check(tmp_path))


def test_a_small_population_keeps_the_papers_data_per_client() -> None:
    few, all_of_them = (next(Panel("fig3", "cifar10", clients=n).configs()) for n in (10, None))
    assert (few.clients, few.per_client) == (10, 500)
    assert (all_of_them.clients, all_of_them.per_client) == (None, None)


def test_data_sets_of_which_no_run_is_left_are_named_too(tmp_path: Path, results: Path) -> None:
    shutil.copytree(
        results / "fig3" / "digits" / "fedavg-seed0", tmp_path / "fig3/digits/fedavg-seed0"
    )
    for name in ("beta", "alpha"):
        broken = tmp_path / "fig3" / name / "hf-maml-seed0"
        broken.mkdir(parents=True)
        (broken / grid.DIVERGED).write_text("client 1 has loss nan in round 1: try again\n")
    write(tmp_path, "fig3", NOTE)
    text = (tmp_path / "fig3" / "README.md").read_text()
    assert text.index("## alpha") < text.index("## beta") < text.index("## digits")
    assert check(tmp_path) == []
    shutil.rmtree(tmp_path / "fig3" / "digits")
    assert any("holds no finished runs" in fault for fault in check(tmp_path))
