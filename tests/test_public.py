"""What users may rely on: names, light imports."""

from __future__ import annotations

import subprocess
import sys

import srpfl

HEAVY = ["flwr", "matplotlib", "sklearn", "pandas", "pyarrow", "PIL", "typer", "rich"]
HEAVY += ["tensorboard", "mlflow", "wandb"]


def test_the_public_names() -> None:
    assert srpfl.__all__ == sorted(
        srpfl.__all__, key=lambda n: (not n.isupper(), n[0].islower(), n)
    )
    for name in srpfl.__all__:
        assert getattr(srpfl, name).__doc__


def test_importing_srpfl_imports_nothing_heavy() -> None:
    script = f"import sys, srpfl; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr
