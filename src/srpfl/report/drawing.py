"""The one look of all static plots: ground, grid, lines, bands, labels at the lines' ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from srpfl.errors import ConfigError, RunFolderError
from srpfl.report.palette import DASH, LIGHT, LIGHT_STEPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, LATE, GRID = "#1c2330", "#5a6475", "#b4bac6", "#e4e7ec"
DASHED = (0, tuple(float(part) / 2 for part in DASH.split()))  # waits for everyone
DOTTED = (0, (1, 3))  # a target
ACROSS = 3  # panels in a row
RC: dict[Any, Any] = {  # matplotlib's stubs know the names of its settings only as literals
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.edgecolor": "#9aa4b2",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.titlesize": "medium",
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,  # as journals want it
}


def colour(slot: int) -> str:
    """A family's colour on white."""
    return LIGHT[slot % len(LIGHT)]


def step(place: int, count: int) -> str:
    """A colour for the place-th of some values that grow, as C does."""
    last = len(LIGHT_STEPS) - 1
    return LIGHT_STEPS[round(place * last / max(1, count - 1)) if count > 1 else 1]


def panels(
    count: int,
    *,
    size: tuple[float, float] = (4.4, 3.4),
    across: int | None = None,
    share_x: bool = False,
    share_y: bool = True,
) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels, at most three in a row."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    across = across or (2 if count == 4 else min(count, ACROSS))
    down = math.ceil(count / across)
    with rc_context(RC):
        # The figure's own canvas and not pyplot: no window system, no global state.
        figure = Figure(figsize=(0.6 + size[0] * across, size[1] * down), layout="constrained")
        grid = list(
            figure.subplots(
                down, across, squeeze=False, sharex=share_x, sharey="row" if share_y else False
            ).flat
        )
    for spare in grid[count:]:
        spare.remove()
    return figure, grid[:count]


def label_ends(axes: Axes, lines: Sequence[tuple[float, float, str, str]]) -> None:
    """Words beside the ends of lines, moved apart where they would lie on each other; each is
    (x, y, words, colour)."""
    if not lines:
        return
    axes.autoscale_view()
    box = axes.get_window_extent()
    point = axes.figure.dpi / 72
    apart = 9.0 * point / max(1.0, box.height)  # of the panel's height
    letter = 6.0 * point / max(1.0, box.width)  # of its width
    to_axes = axes.transData + axes.transAxes.inverted()
    placed = sorted(
        ([*to_axes.transform((x, y)), words, ink] for x, y, words, ink in lines),
        key=lambda one: one[1],
    )

    def beside(one: list[Any], others: Sequence[list[Any]]) -> list[float]:
        """The heights of others whose words would be at the same place across."""
        ends = one[0] + letter * (len(one[2]) + 1)
        return [
            y for x, y, words, _ in others if x < ends and one[0] < x + letter * (len(words) + 1)
        ]

    for place, one in enumerate(placed):
        one[1] = max([one[1], *(y + apart for y in beside(one, placed[:place]))])
    placed.reverse()
    for place, one in enumerate(placed):  # those at the top go down, and push the others
        one[1] = min([one[1], 1.0, *(y - apart for y in beside(one, placed[:place]))])
    for x, y, words, ink in reversed(placed):
        axes.annotate(
            words, (min(x, 1.0), y), (5, 0), xycoords="axes fraction",
            textcoords="offset points", color=_darker(ink), fontsize="small", va="center",
            annotation_clip=False,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )  # fmt: skip


def _darker(ink: str) -> str:
    """A colour that words can be read in: lines may be lighter than letters."""
    parts = [int(ink[place : place + 2], 16) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(0.65 * part):02x}" for part in parts)


def dot(x: Sequence[float]) -> str | None:
    """The mark of a single point, which is no line and would not be seen."""
    return "o" if len(x) == 1 else None


def band(
    axes: Axes,
    x: Sequence[float],
    middle: Sequence[float],
    spread: Sequence[float],
    ink: str,
    *,
    ratio: bool = False,
) -> None:
    """One standard deviation over seeds to both sides, where there are several; for ratios the
    same factor to both sides, as one that went as far down as up would end below 0."""
    if any(spread):
        high = [value + width for value, width in zip(middle, spread, strict=True)]
        if ratio:
            low = [value**2 / top for value, top in zip(middle, high, strict=True)]
        else:
            low = [value - width for value, width in zip(middle, spread, strict=True)]
        # Stairs, as the line of a speed-up is drawn.
        stairs: Literal["post"] | None = "post" if ratio else None
        axes.fill_between(x, low, high, step=stairs, color=ink, alpha=0.15, linewidth=0)


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its name's ending."""
    from matplotlib import rc_context

    # Without a date and with fixed names inside, the same run gives the same file.
    undated: dict[str, dict[str, Any]] = {
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None, "ModDate": None},
    }
    _no_formulas(figure)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context({**RC, "svg.hashsalt": "srpfl"}):
            figure.savefig(path, dpi=150, metadata=undated.get(path.suffix.lower()))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"cannot write the picture {path}: {error}") from error


def _no_formulas(figure: Figure) -> None:
    """Names are those of others: a $ in one begins no formula. Numbers on axes may be some."""
    from matplotlib.text import Text

    both = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    numbers = {id(label) for axis in both for label in axis.get_ticklabels(which="both")}
    for text in figure.findobj(Text):
        if isinstance(text, Text) and id(text) not in numbers:
            text.set_parse_math(False)


def check_file(file: Path) -> None:
    """Refuse a file that cannot become a picture, before anything long is computed for it."""
    from matplotlib.figure import Figure

    formats = Figure().canvas.get_supported_filetypes()
    if file.suffix.lstrip(".").lower() not in formats:
        raise ConfigError(
            f"cannot write the plot to {file}: end its name in .png, .pdf or .svg, for example"
        )
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"cannot write the plot to {file}: there is no such folder")
