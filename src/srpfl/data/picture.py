"""The picture of a partition: how many training points of each class each client holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from srpfl.data.base import Federated, IntArray


def counts(data: Federated) -> IntArray:
    """Training points by client and class; one column where there are no classes.

    >>> from srpfl.data import load
    >>> counts(load("digits", clients=5)).shape
    (5, 10)
    """
    if not data.classes:
        return np.array([[data.size(client)] for client in range(data.clients)])
    table = [np.bincount(data.train(c).y, minlength=data.classes) for c in range(data.clients)]
    return np.array(table)


def draw(data: Federated, path: str | Path) -> None:
    """Draw clients against classes; a dot's area is the number of training points there.

    >>> import tempfile
    >>> from srpfl.data import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(load("digits", clients=5), Path(folder) / "partition.png")
    """
    # The figure's own canvas and not pyplot: no window system, no global state.
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    table = counts(data)
    client, kind = np.nonzero(table)
    points = table[client, kind]
    classes = table.shape[1]
    cell = min(18.0, 860 / data.clients, 860 / classes)  # points of 1/72 inch
    width, height = data.clients * cell / 72 + 1.6, classes * cell / 72 + 1.4
    figure = Figure(figsize=(max(4.5, width), max(2.8, height)), layout="constrained")
    axes = figure.subplots()
    areas = (0.95 * cell) ** 2 * points / points.max()
    blues = LinearSegmentedColormap.from_list(
        "few to many", ["#c3d9ea", "#003f73"]
    )  # as a report's
    dots = axes.scatter(client, kind, areas, c=points, cmap=blues, vmin=0, linewidths=0)
    axes.set(
        xlim=(-0.8, data.clients - 0.2),
        ylim=(classes - 0.2, -0.8),
        xlabel="client",
        ylabel="class" if data.classes else "",
        title=f"{data.clients} clients, {points.sum()} training points "
        f"({table.sum(axis=1).min()} to {table.sum(axis=1).max()} each)",
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    figure.colorbar(dots, label="training points", shrink=0.8)
    figure.savefig(path, dpi=120)
