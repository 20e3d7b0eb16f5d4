"""Pictures of the theory: the speed-up over N, and the way of a run down to ε."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from srpfl.errors import ConfigError
from srpfl.report.drawing import (
    DASHED,
    DOTTED,
    INK,
    SOFT,
    check_file,
    colour,
    label_ends,
    panels,
    save,
    step,
)
from srpfl.theory.contraction import contract
from srpfl.theory.speedup import Assumptions, compare


def draw_speedup(
    setting: Assumptions,
    file: Path,
    *,
    cs: Sequence[float] = (0.0, 0.1, 1.0, 10.0, 100.0),
    c_hats: Sequence[float] = (1.4, 1.2, 1.05, 1.01, 1.001),
) -> None:
    """The speed-up against N: on the left for several c, on the right for several ĉ."""
    check_file(file)
    figure, (left, right) = panels(2, size=(4.8, 3.8))
    for axes, name, values in ((left, "c", cs), (right, "ĉ", c_hats)):
        ends = []
        for place, value in enumerate(values):
            here = replace(setting, c=value) if name == "c" else replace(setting, c_hat=value)
            ink = step(place, len(values))
            sizes, speedups = _speedup_curve(here)
            axes.plot(sizes, speedups, marker=".", color=ink)
            if sizes:
                ends.append((sizes[-1], speedups[-1], f"{name} = {value:g}", ink))
        axes.axhline(1, color=INK, linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xlabel(f"clients N   (n₀ = {setting.start}, a = {setting.a:g})")
        label_ends(axes, ends)
    left.set_title(f"cost of communication (ĉ = {setting.c_hat:g})")
    right.set_title(f"accuracy of the target (c = {setting.c:g})")
    left.set_ylabel("speed-up of SRPFL over FedRep")
    save(figure, file)


def draw_descent(setting: Assumptions, file: Path) -> None:
    """The distance against the expected time on the way to ε, round by round."""
    check_file(file)
    figure, (axes,) = panels(1, size=(6.6, 4.2))
    answer = compare(setting)
    stages = [(stage.n, stage.rounds) for stage in answer.stages]
    ink = colour(0)
    for name, line, todo in (
        ("SRPFL", "-", stages),
        ("FedRep", DASHED, [(setting.clients, answer.fedrep.rounds)]),
    ):
        times, distances = _descent(setting, todo)
        axes.plot(times, distances, marker=".", markersize=4, color=ink, linestyle=line, label=name)
    ends = itertools.accumulate(stage.time for stage in answer.stages)
    for stage, end in zip(answer.stages, ends, strict=True):
        if stage.rounds:
            axes.text(end, stage.distance, f" n = {stage.n}", color=ink, fontsize=8, rotation=30)
    axes.axhline(answer.epsilon, color=SOFT, linewidth=0.9, linestyle=DOTTED)
    axes.text(0.02, answer.epsilon, "ε", va="bottom", transform=axes.get_yaxis_transform())
    # Early rounds take a thousandth of late ones: only logarithms show both.
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("expected time (1 = mean time of a client)")
    axes.set_ylabel("distance, as the contraction bounds it")
    axes.set_title(
        f"N = {setting.clients}, n₀ = {setting.start}, a = {setting.a:g}, c = {setting.c:g}, "
        f"ĉ = {setting.c_hat:g}: {answer.speedup:.1f} times faster"
    )
    axes.legend(loc="lower left", bbox_to_anchor=(0, 0.1), frameon=False)
    save(figure, file)


def _speedup_curve(setting: Assumptions) -> tuple[list[int], list[float]]:
    sizes, speedups = [], []
    for power in range(1, 21):
        try:
            here = replace(setting, clients=setting.start * 2**power)
        except ConfigError:
            continue  # too few clients: ε is no closer than the start
        sizes.append(here.clients)
        speedups.append(compare(here).speedup)
    return sizes, speedups


def _descent(
    setting: Assumptions, stages: Sequence[tuple[int, int]]
) -> tuple[list[float], list[float]]:
    clock, distance = 0.0, 1.0
    times, distances = [], []
    for n, rounds in stages:
        for _ in range(rounds):
            clock += setting.round_time(n)
            distance = contract(distance, n, start=setting.start, a=setting.a)
            times.append(clock)
            distances.append(distance)
    return times, distances
