"""Pictures of the theory: the speed-up over N, and the way of a run down to ε."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from srpfl.errors import ConfigError
from srpfl.theory.contraction import contract
from srpfl.theory.speedup import Setting, compare


def draw_speedup(
    setting: Setting,
    file: Path,
    *,
    cs: Sequence[float] = (0.0, 0.1, 1.0, 10.0, 100.0),
    c_hats: Sequence[float] = (1.4, 1.2, 1.05, 1.01, 1.001),
) -> None:
    """The speed-up against N: on the left for several c, on the right for several ĉ."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for c in cs:
        _speedup_curve(left, replace(setting, c=c), f"c = {c:g}")
    for c_hat in c_hats:
        _speedup_curve(right, replace(setting, c_hat=c_hat), f"ĉ = {c_hat:g}")
    left.set_title(f"cost of communication (ĉ = {setting.c_hat:g})")
    right.set_title(f"accuracy of the target (c = {setting.c:g})")
    left.set_ylabel("speed-up of SRPFL over FedRep")
    for axes in (left, right):
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xlabel(f"clients N   (n₀ = {setting.start}, a = {setting.a:g})")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="upper left")
    save(figure, file)


def draw_descent(setting: Setting, file: Path) -> None:
    """The distance against the expected time on the way to ε, round by round."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    answer = compare(setting)
    stages = [(stage.n, stage.rounds) for stage in answer.stages]
    _descent_curve(axes, setting, stages, "SRPFL", "C0")
    _descent_curve(axes, setting, [(setting.clients, answer.fedrep.rounds)], "FedRep", "C1")
    ends = itertools.accumulate(stage.time for stage in answer.stages)
    for stage, end in zip(answer.stages, ends, strict=True):
        if stage.rounds:
            axes.text(end, stage.distance, f" n = {stage.n}", color="C0", fontsize=8, rotation=30)
    axes.axhline(answer.epsilon, color="black", linewidth=0.8, linestyle=":")
    axes.text(0.02, answer.epsilon, "ε", va="bottom", transform=axes.get_yaxis_transform())
    # Early rounds take a thousandth of late ones: only logarithms show both.
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("expected time, in units of 1/λ")
    axes.set_ylabel("distance, as the contraction bounds it")
    axes.set_title(
        f"N = {setting.clients}, n₀ = {setting.start}, a = {setting.a:g}, c = {setting.c:g}, "
        f"ĉ = {setting.c_hat:g}: {answer.speedup:.1f} times faster"
    )
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 0.1))
    save(figure, file)


def _speedup_curve(axes: Axes, setting: Setting, label: str) -> None:
    sizes, speedups = [], []
    for power in range(1, 21):
        try:
            here = replace(setting, clients=setting.start * 2**power)
        except ConfigError:
            continue  # too few clients: ε is no closer than the start
        sizes.append(here.clients)
        speedups.append(compare(here).speedup)
    axes.plot(sizes, speedups, marker=".", label=label)


def _descent_curve(
    axes: Axes, setting: Setting, stages: Sequence[tuple[int, int]], label: str, color: str
) -> None:
    clock, distance = 0.0, 1.0
    times, distances = [], []
    for n, rounds in stages:
        for _ in range(rounds):
            clock += setting.round_time(n)
            distance = contract(distance, n, start=setting.start, a=setting.a)
            times.append(clock)
            distances.append(distance)
    axes.plot(times, distances, marker=".", markersize=4, label=label, color=color)


def check_file(file: Path) -> None:
    """Refuse a file that cannot become a picture, before anything long is computed for it."""
    formats = Figure().canvas.get_supported_filetypes()
    if file.suffix.lstrip(".").lower() not in formats:
        raise ConfigError(
            f"cannot write the plot to {file}: end its name in .png, .pdf or .svg, for example"
        )
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"cannot write the plot to {file}: there is no such folder")


def save(figure: Figure, file: Path) -> None:
    """Write the picture, in the format that the file's ending names."""
    check_file(file)
    try:
        figure.savefig(file, dpi=120)
    except OSError as problem:
        raise ConfigError(f"cannot write the plot to {file}: {problem}") from None
