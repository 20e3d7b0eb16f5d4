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
        if service["command"][0] != "sleep":
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


def test_the_image_has_what_it_needs(tmp_path: Path) -> None:
    """From nothing but the files that it copies, the package can be built."""
    given = (ROOT / ".dockerignore").read_text().splitlines()
    for words in re.findall(r"^COPY (.*)$", (KIT / "Dockerfile").read_text(), re.MULTILINE):
        *sources, target = words.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in given
            if target in (".", "./", "src"):
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, tmp_path / source)
    script = "from setuptools.build_meta import *; prepare_metadata_for_build_wheel('.')"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-400:]


FLWR = """#!/bin/sh
echo "$3" >> "$0.said"
case $3 in
*node-0*) echo "[code: 23] Public key already in use."; exit 1 ;;
*node-2*) echo "Public key file does not exist."; exit 1 ;;
esac
[ -e "$0.up" ] || { touch "$0.up"; echo "Connection refused"; exit 1; }
"""


@pytest.mark.parametrize(("nodes", "fine"), [(2, True), (3, False)])
def test_nodes_are_registered_again_and_again(tmp_path: Path, nodes: int, fine: bool) -> None:
    """A key that is registered already is no trouble, nor is a SuperLink that is not up yet; other
    connections are left as they are, and ours is found from any folder."""
    flwr, home = tmp_path / "flwr", tmp_path / "home"
    flwr.write_text(FLWR)
    flwr.chmod(0o755)
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    (tmp_path / "sleep").chmod(0o755)
    home.mkdir()
    (home / "config.toml").write_text('[superlink]\ndefault = "other"\n')
    (tmp_path / "keys").mkdir()
    surroundings = {"PATH": f"{tmp_path}:/usr/bin:/bin", "FLWR_HOME": str(home)}
    command = ["sh", str(KIT / "register.sh"), str(nodes), "keys"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True)
        assert (done.returncode == 0) == fine, done
    said = (home / "config.toml").read_text()
    assert said.startswith('[superlink]\ndefault = "other"\n')
    assert said.count(f'root-certificates = "{tmp_path}/keys/ca.crt"') == 1
    assert f"{tmp_path}/keys/public/node-1.pub" in (tmp_path / "flwr.said").read_text()


def test_every_fault_of_the_table_has_its_test() -> None:
    from flower.deploy_faults import FAULTS

    for _, test, _ in FAULTS.values():
        path, _, name = test.partition("::")
        text = (ROOT / "tests" / "flower" / path).read_text()
        assert f"def {name.partition('[')[0]}(" in text if name else "def test_" in text, test


def test_what_was_cut_short_goes_on_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flower import deploy_faults

    page, names = tmp_path / "page.md", list(deploy_faults.FAULTS)
    page.write_text(f"before\n{deploy_faults.BEGIN}{deploy_faults.END}after\n")
    monkeypatch.setattr(deploy_faults, "PAGE", page)
    monkeypatch.setattr(deploy_faults, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(deploy_faults, "commit", lambda: "c1")
    tried: list[str] = []

    def cut_short(name: str) -> dict[str, object]:
        tried.append(name)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return {"held": "yes", "seconds": 1, "commit": "c1"}

    def run(*words: str) -> None:
        tried.clear()
        monkeypatch.setattr(sys, "argv", ["deploy_faults.py", *words])
        deploy_faults.main()

    monkeypatch.setattr(deploy_faults, "tried", cut_short)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert page.read_text().count("| yes |") == 2  # what there is is on the page
    answers = {names[2]: "NO", names[3]: "not tried here"}
    monkeypatch.setattr(
        deploy_faults,
        "tried",
        lambda name: (
            tried.append(name) or {"held": answers.get(name, "yes"), "seconds": 1, "commit": "c1"}
        ),
    )
    with pytest.raises(SystemExit, match="True"):
        run("--rest")
    assert tried == names[2:]
    assert f"1 of {len(names) - 2}: {names[2]}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run("--rest")
    assert tried == names[2:4]  # what did not hold, or could not be tried
    monkeypatch.setattr(deploy_faults, "commit", lambda: "c2")
    answers.clear()
    with pytest.raises(SystemExit, match="False"):
        run("--rest")
    assert tried == names
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")


def test_the_steps_are_shell_and_name_what_there_is() -> None:
    text = (KIT / "README.md").read_text()
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        done = subprocess.run(["sh", "-n"], input=block, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for path in re.findall(r"(?<![\w/])(?:\.\./)?((?:deploy|examples)/[\w./@-]*\w)", text):
        assert (ROOT / path).exists(), path
    for program in re.findall(r"srpfl deploy (\w+)", text):
        assert program in get_command(app).commands["deploy"].commands  # type: ignore[attr-defined]
