"""FedBalancer's ratios: the page follows from the records, and a missing run is said."""

from __future__ import annotations

import json
from pathlib import Path

from srpfl.studies import fedbalancer
from srpfl.studies.fedbalancer import LABELS, build, check, policies, ratio


def line(policy: str, seed: int, seconds: list[float | None]) -> dict:
    about = {"final": 0.7, "rounds": 9, "length": 80.0, "answers": 90.0, "mean": 10.0, "late": 0.2}
    return {"policy": policy, "seed": seed, "seconds": seconds, **about}


def test_a_ratio_is_over_seeds_and_none_where_one_did_not_get_there() -> None:
    found = [
        line("everyone", 0, [100.0, 200.0, None]),
        line("everyone", 1, [200.0, 400.0, None]),
        line("2T", 0, [50.0, None, None]),
        line("2T", 1, [50.0, 100.0, None]),
    ]
    assert ratio(found, "2T", "everyone", 0) == (0.5 + 0.25) / 2
    assert ratio(found, "2T", "everyone", 1) is None
    assert ratio(found, "first-80", "everyone", 0) is None


def test_the_page_follows_from_the_records(tmp_path: Path) -> None:
    runs = [line(name, 0, [100.0 if name == "everyone" else 30.0, 60.0, None]) for name in LABELS]
    file = tmp_path / "fedbalancer.jsonl"
    file.write_text("".join(json.dumps(run) + "\n" for run in runs))
    page = tmp_path / fedbalancer.PAGE
    page.write_text(build(tmp_path))
    assert "| first 80 % | 0.31 | 0.30 | 0.96 |" in page.read_text()
    assert check(tmp_path) == []
    page.write_text("something else")
    assert "does not follow" in check(tmp_path)[0]
    file.write_text(json.dumps(runs[0]) + "\n")
    assert "| first 80 % | 0.31 | – | – |" in build(tmp_path)
    assert check(tmp_path / "none") == []


def test_deadlines_are_multiples_of_what_an_answer_took() -> None:
    found = policies(7.0)
    assert found.keys() == LABELS.keys()
    assert found["2T"][1].seconds == 14.0  # type: ignore[attr-defined]
    assert found["prox-1T"][1].partial  # type: ignore[attr-defined]
