"""What users may rely on: names, light imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import srpfl

HEAVY = ["torch", "numpy", "flwr", "matplotlib", "sklearn", "pandas", "pyarrow", "PIL"]
HEAVY += ["typer", "rich", "tensorboard", "mlflow", "wandb", "ray"]
NAMES = Path(__file__).with_name("public_names.txt")


def declared() -> dict[str, str]:
    """The names that type checkers see, and where each comes from."""
    tree = ast.parse(Path(str(srpfl.__file__)).read_text())
    return {
        alias.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("srpfl")
        for alias in node.names
    }


def test_the_public_names_are_those_that_were_promised() -> None:
    """A name that goes away breaks the code of others: it is deprecated first. A new one is added
    to the list, so that it is there because somebody wanted it."""
    assert set(NAMES.read_text().split()) == set(srpfl.__all__)
    assert srpfl.__all__ == sorted(
        srpfl.__all__, key=lambda n: (not n.isupper(), n[0].islower(), n)
    )
    for name in srpfl.__all__:
        assert getattr(srpfl, name).__doc__


def test_a_name_is_the_same_at_run_time_and_for_type_checkers() -> None:
    known = declared()
    assert known.keys() == set(srpfl.__all__)
    for name, home in known.items():
        room = home == "srpfl"
        module = import_module(f"srpfl.{name}" if room else home)
        assert getattr(srpfl, name) is (module if room else getattr(module, name))
    assert set(srpfl.__all__) <= set(dir(srpfl))


def test_the_version_is_the_same_wherever_a_release_says_it() -> None:
    root = Path(__file__).parents[1]
    assert f"\nversion: {srpfl.__version__}\n" in (root / "CITATION.cff").read_text()
    assert f"\n## {srpfl.__version__}\n" in (root / "CHANGELOG.md").read_text()


def test_importing_srpfl_imports_nothing_heavy() -> None:
    script = f"import sys, srpfl; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
