"""What CONTRIBUTING promises is there: commands, files, and CI on all that is supported."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def test_the_commands_that_contributors_are_told_are_there() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    told = set(re.findall(r"`make ([\w-]+)", CONTRIBUTING))
    assert len(told) >= 6
    assert told <= set(targets)


def test_a_contributor_finds_the_files_to_change() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|md|txt))`", CONTRIBUTING)
    files = [name for name in named if "NAME" not in name]
    assert len(files) >= 8
    for name in files:
        places = [ROOT / name, ROOT / "src" / name, ROOT / "src" / "srpfl" / name]
        # `methods.py` stands for the file of that name that was written out before it.
        assert any(map(Path.exists, places)) or f"/{name}`" in CONTRIBUTING, name
    for room in re.findall(r"`src/srpfl/(\w+)/NAME\.py`", CONTRIBUTING):
        assert (ROOT / "src" / "srpfl" / room).is_dir()


def test_what_visitors_of_a_repository_look_for_is_there() -> None:
    texts = ["SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"]
    forms = ["pull_request_template.md", "ISSUE_TEMPLATE/bug.md", "ISSUE_TEMPLATE/idea.md"]
    names = [*texts, *(f".github/{form}" for form in forms), ".pre-commit-config.yaml"]
    assert [name for name in names if not (ROOT / name).read_text().strip()] == []
    for promise in ("deprecated first", "`format` number", "twine check --strict"):
        assert promise in CONTRIBUTING


def test_the_workflow_runs_the_same_on_every_system_and_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["test"]
    kinds = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    pythons = [found[1] for kind in kinds if (found := re.search(r":: (3\.\d+)$", kind))]
    assert job["strategy"]["matrix"]["python"] == pythons == ["3.11", "3.12", "3.13", "3.14"]
    systems = {name.partition("-")[0] for name in job["strategy"]["matrix"]["os"]}
    assert systems == {"ubuntu", "macos", "windows"}
    assert ".ci/run" in [step.get("run") for step in job["steps"]]
    assert "make check\nmake test-all\n" in (ROOT / ".ci" / "run").read_text()
