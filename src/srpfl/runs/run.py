"""A run as its user holds it: what it has to say, with its pictures and tables."""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from srpfl.errors import ConfigError, unknown
from srpfl.runs.results import Results

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Run(Results):
    """A finished or loaded run."""

    @overload
    def plot(
        self,
        path: str | Path | None = None,
        communication: float | None = None,
        *,
        kind: str = "metric",
        ax: None = None,
    ) -> Figure: ...

    @overload
    def plot(
        self, path: None = None, communication: float | None = None, *, kind: str = ..., ax: Axes
    ) -> Axes: ...

    def plot(
        self,
        path: str | Path | None = None,
        communication: float | None = None,
        *,
        kind: str = "metric",
        ax: Axes | None = None,
    ) -> Figure | Axes:
        """A picture of the run; written to a file (PNG, SVG, PDF) if one is named. With ``ax``,
        the curve is drawn into that panel of a figure of yours, and the panel is returned.

        ``kind`` is "metric" (accuracy, or whatever the task is judged by, against simulated time),
        "rounds" (who was waited for) or "clients" (the metric and participation of each, from the
        fastest to the slowest).
        """
        from srpfl.report.plots import PLOTS

        if kind not in PLOTS:
            raise unknown("plot", kind, PLOTS)
        if ax is not None:
            return self._into(ax, path, communication, kind)
        choices = {"communication": self.cost(communication)} if kind == "metric" else {}
        return PLOTS[kind]([self], path=path, **choices)

    def _into(
        self, ax: Axes, path: str | Path | None, communication: float | None, kind: str
    ) -> Axes:
        if kind != "metric" or path is not None:
            raise ConfigError('plot(ax=...) draws the curve of kind="metric", and saves nothing')
        from srpfl.report.plots import metric_panel

        # Words at a line's end would be in the wrong place once the next run is drawn.
        metric_panel(ax, [self], self.cost(communication), label=False)
        return ax  # not its figure: a notebook shows that by itself, and would show it twice

    def _repr_html_(self) -> str:
        """What a notebook shows: the run in a line, and its curve."""
        line = f"<p><code>{html.escape(repr(self))}</code></p>"
        if not self.curve():
            return line
        picture = io.BytesIO()
        self.plot().savefig(picture, format="png", dpi=80)
        data = base64.b64encode(picture.getvalue()).decode()
        words = f"{self.headline} {self.judged_by.title} of {self.name} against simulated time"
        return f'{line}<img alt="{html.escape(words)}" src="data:image/png;base64,{data}">'

    def to_pandas(
        self, table: str = "evaluations", communication: float | None = None
    ) -> pandas.DataFrame:
        """Records as a data frame: "evaluations", "clients" (their values of the metric), "rounds"
        or "arrivals".

        Times are the run's own, or those at another C. Needs pandas.
        """
        from srpfl.runs.export import to_pandas

        return to_pandas(self, table, self.cost(communication))
