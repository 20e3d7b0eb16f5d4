"""Everyone can use the report: axe-core finds nothing to complain about."""

from __future__ import annotations

import json
import os
from pathlib import Path

import made_up
import pytest
from browser import AXE, Page

from srpfl.report import write_report

RUN = """(async () => {
  document.querySelectorAll("details").forEach((node) => { node.open = true; });
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.map((each) => `${each.id}: ${each.nodes.map((node) => node.html.slice(0, 120)).slice(0, 3).join(" | ")}`);
})()"""  # noqa: E501


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        if os.environ.get("SRPFL_NEEDS_BROWSER"):
            pytest.fail("SRPFL_NEEDS_BROWSER is set, but there is no axe-core")
        pytest.skip("there is no axe-core: tests/report/get_browser.py gets it")
    return AXE.read_text(encoding="utf-8")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1400])
def test_axe_finds_nothing(page: Page, axe: str, tmp_path: Path, width: int, dark: bool) -> None:
    runs = [made_up.run(name, seed=seed) for name in ("fedrep", "srpfl") for seed in (0, 1)]
    runs += [made_up.run("flanp", planned=40), made_up.run("srpfl", data="other")]
    page.resize(width, 900, dark=dark)
    try:
        page.open(write_report(runs, tmp_path / "report.html").as_uri() + "#hide=flanp")
        page.evaluate(axe + ";0")
        assert page.evaluate(RUN) == [], json.dumps(page.complaints)
    finally:
        page.resize(1280, 900)
