"""The operators' kit: every file parses, and says only what the programs understand."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from srpfl.cli import app

ROOT = Path(__file__).parents[2]
KIT = ROOT / "deploy"
MANIFESTS = sorted(KIT.glob("kubernetes/*.yaml"))
UNITS = sorted(KIT.glob("systemd/*.service"))


def commands() -> Iterator[tuple[str, list[str]]]:
    compose = yaml.safe_load((KIT / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        yield f"compose {name}", service["command"]
    for path in MANIFESTS:
        for thing in yaml.safe_load_all(path.read_text()):
            spec = thing.get("spec", {}).get("template", {}).get("spec", {})
            for container in spec.get("containers", []):
                yield f"{path.name} {container['name']}", container["command"]
    for path in UNITS:
        text = path.read_text().replace("\\\n", " ")
        for line in re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE):
            words = shlex.split(line)
            yield path.name, [Path(words[0]).name, *words[1:]]


@cache
def options_of(program: str) -> set[str]:
    """The options that one of Flower's programs knows."""
    path = Path(sys.executable).with_name(program)
    said = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=120, check=True)
    return set(re.findall(r"--[a-z-]+", said.stdout))


@pytest.mark.parametrize("words", [pytest.param(w, id=n) for n, w in commands()])
def test_a_command_of_the_kit_is_one_that_exists(words: list[str]) -> None:
    options = {word.split("=")[0] for word in words if word.startswith("--")}
    if words[0] == "srpfl":
        command: Any = get_command(app)
        for name in words[1:3]:
            command = command.commands[name]
        known = {option for each in command.params for option in each.opts}
        needed = {
            each.opts[0] for each in command.params if each.required and each.opts[0] != "run"
        }
        assert needed <= options
    else:
        known = options_of(words[0])
    assert options <= known


def test_the_superlink_is_on_loopback_and_nodes_run_only_what_is_signed() -> None:
    found = list(commands())
    links = [words for _, words in found if words[0] == "flower-superlink"]
    nodes = [words for _, words in found if words[0] == "flower-supernode"]
    assert len(links) == 3
    assert len(nodes) == 5
    for words in links:
        assert "127.0.0.1" in " ".join(words)
        assert "0.0.0.0" not in " ".join(words)
        assert "--enable-supernode-auth" in words
        assert "--insecure" not in words
    for words in nodes:
        text = " ".join(words)
        assert "--trusted-entities" in text
        assert "--auth-supernode-private-key" in text
        assert "--insecure" not in text


def checked(program: str, *arguments: str) -> None:
    beside = Path(sys.executable).with_name(program)
    if not beside.exists():
        pytest.skip(f"{program} is not installed")
    done = subprocess.run(
        [beside, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_follows_its_specification() -> None:
    path = str(KIT / "compose.yaml")
    checked("check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)


def test_kubernetes_takes_the_manifests() -> None:
    checked("kubernetes-validate", *map(str, MANIFESTS))


def test_nothing_is_wrong_with_the_dockerfile() -> None:
    checked("hadolint", str(KIT / "Dockerfile"))


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_unit(path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed")
    done = subprocess.run(
        [program, "verify", path], capture_output=True, text=True, timeout=120, check=False
    )
    said = [line for line in done.stderr.splitlines() if "is not executable" not in line]
    assert not [line for line in said if path.name.split("@")[0] in line], said


def test_the_image_has_what_it_copies() -> None:
    for words in re.findall(r"^COPY (.*)$", (KIT / "Dockerfile").read_text(), re.MULTILINE):
        for source in words.split()[:-1]:
            assert (ROOT / source).exists(), source
