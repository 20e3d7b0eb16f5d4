"""The shoot-out: the same work for all, times that add up, and a page that follows from records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from srpfl.errors import ConfigError, DivergedError
from srpfl.studies import shootout, shootout_table
from srpfl.studies.shootout import POLICIES, SETTINGS, config_of, study

ROOT = Path(__file__).parents[2]


def test_everyone_gets_about_as_much_local_work() -> None:
    for policy in ("everyone", "first-50", "fedbuff", "fedasync"):
        config = config_of("digits-fixed", policy, 0, 0.0, {}, None)
        assert config.rounds * POLICIES[policy].answers(20) == pytest.approx(800, rel=0.05)
    with pytest.raises(ConfigError, match="traces"):
        config_of("digits-phones", "everyone", 0, 0.0, {}, None)


def line(policy: str, curve: list[list[float]], cost: float = 0.0, charged: float = 0.0) -> dict:
    counts = {"asked": 10, "counted": 8, "dropped": 2, "lost": 0, "megabytes": 1.0}
    ends = {"final": curve[-1][2], "worst": 0.1, "slow": 0.2}
    where = {"policy": policy, "seed": 0, "C": cost, "charged": charged}
    return {**where, "curve": curve, **ends, **counts}


def test_times_have_communication_by_round_or_in_the_clients_own_times() -> None:
    found = [
        line("everyone", [[2, 20.0, 0.4], [5, 50.0, 0.8]]),
        line("first-50", [[2, 4.0, 0.2], [4, 8.0, 0.6]]),
        line("fedbuff", [[10, 3.0, 0.4]]),
        line("fedbuff", [[10, 33.0, 0.4]], cost=10.0),
    ]
    free, dear = (
        {row.policy: row for row in shootout_table.rows("digits-fixed", found, cost)}
        for cost in (0.0, 10.0)
    )
    # The target is 0.4, everyone's after two of five rounds.
    assert (free["everyone"].time, dear["everyone"].time) == (20.0, 40.0)
    assert free["first-50"].time == pytest.approx(6.0)  # half way between two evaluations
    assert dear["first-50"].time == pytest.approx(4.0 + 20.0 + (4.0 + 20.0) / 2)
    assert (free["fedbuff"].time, dear["fedbuff"].time) == (3.0, 33.0)
    assert dear["fedbuff"].speedup == pytest.approx(40 / 33)
    assert free["first-50"].wasted == 0.2


def test_the_page_says_how_many_seeds_got_there_and_which_code_played(tmp_path: Path) -> None:
    runs = [
        {**line("everyone", [[2, 20.0, 0.4], [5, 50.0, 0.8]]), "note": "abc"},
        {**line("fedbuff", [[2, 2.0, 0.3]]), "note": "abc"},
        {**line("auto", [[2, 2.0, 0.4]]), "note": "def"},
        {**line("auto", [[2, 2.0, 0.4]], cost=10.0), "note": "ghi"},
    ]
    text = "".join(json.dumps(each) + "\n" for each in runs)
    (tmp_path / "digits-fixed.jsonl").write_text(text)
    page = shootout_table.build(tmp_path)
    assert "| FedBuff | 1 | 0 of 1 | – |" in page
    assert "Played: Auto at def; all others at abc." in page  # of C = 0 ...
    assert "Played: Auto at ghi; all others at abc." in page  # ... and of C = 10


def test_a_run_that_diverges_is_a_result_and_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [line("everyone", [[2, 20.0, 0.4], [5, 50.0, 0.8]])]
    (tmp_path / "digits-fixed.jsonl").write_text(json.dumps(runs[0]) + "\n")

    def diverges(**experiment: object) -> None:
        raise DivergedError("no number")

    monkeypatch.setattr(shootout, "simulate", diverges)
    chosen: dict[str, Any] = {"seeds": [0], "overrides": {}, "policies": ["fedbuff"]}
    assert len(list(study(["digits-fixed"], tmp_path, **chosen))) == 3
    assert list(study(["digits-fixed"], tmp_path, **chosen)) == []
    shootout_table.write(tmp_path)
    assert shootout_table.check(tmp_path) == []
    page = (tmp_path / shootout_table.PAGE).read_text()
    assert "Diverged: FedBuff with C = 0 and seed 0; FedBuff with C = 10" in page
    assert "| FedBuff |" not in page


def test_some_policies_can_be_played_alone() -> None:
    assert SETTINGS["digits-fixed"].among(["fedbuff", "oort"]) == ["fedbuff"]
    with pytest.raises(ConfigError, match="fedbuf"):
        SETTINGS["digits-fixed"].among(["fedbuf"])
    config = config_of("digits-fedavg-ft", "ca2fl", 0, 0.0, {}, None)
    assert config.method == "ca2fl"


def test_a_study_goes_on_where_it_was_and_the_check_finds_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = shootout.Setting(
        "small",
        {**SETTINGS["digits-fixed"].options},
        4,
        4,
        5,
        policies=("everyone", "fedbuff", "oort"),
    )
    monkeypatch.setitem(SETTINGS, "digits-fixed", small)
    played = list(study(["digits-fixed"], tmp_path, seeds=[0], overrides={}))
    assert [each["policy"] for each in played] == ["everyone", "fedbuff"]
    assert list(study(["digits-fixed"], tmp_path, seeds=[0], overrides={})) == []
    shootout_table.write(tmp_path)
    assert shootout_table.check(tmp_path) == []
    file = tmp_path / "digits-fixed.jsonl"
    first = json.loads(file.read_text().splitlines()[0])
    file.write_text(json.dumps({**first, "counted": 1000}) + "\n")
    wrong = " ".join(shootout_table.check(tmp_path))
    assert "FedBuff with C = 0 and seeds 0" in shootout_table.build(tmp_path)
    assert "more answers than asks" in wrong
    assert "does not follow" in wrong


def test_no_bar_of_the_picture_ends_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(shootout_table, "save", lambda figure, path: drawn.append(figure))
    shootout_table.draw(ROOT / "results" / "shootout")
    ends = [(bar.get_x() + bar.get_width(), axes) for axes in drawn[0].axes for bar in axes.patches]
    assert max(end for end, _ in ends) > 40
    assert all(end < axes.get_xlim()[1] for end, axes in ends)
    assert not [text for axes in drawn[0].axes for text in axes.texts if "e+" in text.get_text()]
