"""Pictures and pages made from records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from srpfl.errors import RunFolderError
from srpfl.report.find import find_runs
from srpfl.runs.results import Results

__all__ = ["find_runs", "write_report"]


def write_report(
    runs: Sequence[Results | str | Path],
    path: str | Path,
    *,
    target: float | None = None,
    baseline: str | None = None,
    title: str | None = None,
) -> Path:
    """Write one HTML file that shows the runs, given as such or as their folders.

    Runs on different data, or judged by different metrics, are shown one at a time. ``baseline``
    is the method that speed-ups are over.

    >>> import srpfl, tempfile
    >>> run = srpfl.simulate(
    ...     data=srpfl.data.load("digits", clients=5), model=srpfl.models.MLP(64, (8,), classes=10),
    ...     algorithm=srpfl.FedAvg(), rounds=1,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report([run], f"{folder}/report.html").name
    'report.html'
    """
    from srpfl.report.content import content
    from srpfl.report.page import page

    if not runs:
        raise RunFolderError("there is nothing to report: name at least one run")
    loaded = [run if isinstance(run, Results) else Results.load(run) for run in runs]
    folders = ["" if isinstance(run, Results) else str(run) for run in runs]
    out = Path(path)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shown = content(loaded, folders=folders, target=target, baseline=baseline, title=title)
        out.write_text(page(shown), encoding="utf-8")
    except OSError as error:
        raise RunFolderError(f"cannot write the report {out}: {error.strerror}") from error
    return out
