"""Methods side by side: time to a common target, for every cost of communication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from srpfl.errors import ConfigError, unknown
from srpfl.runs.clients import fairness
from srpfl.runs.groups import family, groups_of, leaves, waits
from srpfl.runs.metric import Metric
from srpfl.runs.race import break_even, finishes, gain, played_at
from srpfl.runs.results import Results
from srpfl.runs.verdict import table

FAR = 0.15  # of the best value: a target further below it than this says little about the end


@dataclass(frozen=True)
class Row:
    """One method, over all its seeds. Runs of one method with other options are another row."""

    method: str
    seeds: list[int]
    final: float  # value of the metric, mean over seeds
    final_spread: float  # standard deviation over seeds, here and below
    # By C; None: not every seed reached it. Without a C that would have been another run.
    time_to_target: dict[float, float | None]
    time_spread: dict[float, float | None]
    speedup: dict[float, float | None]  # over the baseline, by C: the ratio of mean times
    speedup_spread: dict[float, float | None]  # of the ratios seed by seed
    break_even: float | None  # the C up to which it is faster than the baseline
    # Values of the metric at the end, means over seeds; None: there is no such client.
    slower_half: float | None
    slowest_tenth: float | None
    worst_tenth: float | None
    never_heard: float | None


@dataclass(frozen=True)
class Target:
    """A value to reach, and where it comes from."""

    value: float
    origin: str
    caution: str = ""  # what a reader should know about it


@dataclass(frozen=True, repr=False)
class Comparison:
    """Methods side by side. Printed, it is a small table with the verdict below it."""

    metric: str
    higher_is_better: bool
    target: float
    target_origin: str
    caution: str
    baseline: str  # the row that speed-ups are over
    against: str | None  # the row that it is a pair with
    real: bool  # the clients, and so the times
    rows: list[Row]

    def __repr__(self) -> str:
        return table(self)


def compare(
    runs: Sequence[Results],
    *,
    communication: Sequence[float] = (0, 10, 100),
    target: float | None = None,
    baseline: str | None = None,
) -> Comparison:
    """Compare runs of one metric.

    Speed-ups are over one baseline. Unless it is named, it is the method that waits for everyone
    of the first pair that differs in nothing else (fedrep of fedrep and srpfl), or the first
    method. The target is the best value that this pair reached, loosened by 5 %, unless it is
    given: at the very top of a curve it is chance which evaluation comes first. Runs that differ
    in the seed alone are one row, with the mean and the standard deviation.

    >>> import srpfl
    >>> runs = [
    ...     srpfl.simulate(
    ...         data=srpfl.data.load("digits", clients=4, seed=seed),
    ...         model=srpfl.models.MLP(64, (8,), classes=10), algorithm=srpfl.FedAvg(),
    ...         rounds=1, seed=seed, engine="loop",
    ...     )
    ...     for seed in range(2)
    ... ]
    >>> [(row.method, row.seeds) for row in srpfl.compare(runs).rows]
    [('fedavg', [0, 1])]
    """
    if not runs:
        raise ConfigError("there is nothing to compare: no runs were given")
    if bare := [str(run.folder or run.name) for run in runs if not run.scores]:
        raise ConfigError(f"nothing was evaluated yet in {', '.join(bare)}: leave that out")
    metric = common_metric(runs)
    groups = by_group(runs)
    base, other = reference(groups, baseline)
    if target is not None:
        metric.check_target(target)
    goal = target_of(groups, base, other, given=target)
    rows = [_row(group, groups, base, goal.value, communication) for group in groups]
    return Comparison(
        metric.name,
        metric.higher_is_better,
        goal.value,
        goal.origin,
        "; ".join(filter(None, [goal.caution, _kinds(groups, metric)])),
        base,
        other,
        all(run.real for run in runs),
        rows,
    )


def _row(
    group: str,
    groups: Mapping[str, Sequence[Results]],
    base: str,
    target: float,
    communication: Sequence[float],
) -> Row:
    mine, theirs = groups[group], groups[base]
    there, theirs_there = finishes(mine, target), finishes(theirs, target)
    costs = [cost for cost in communication if played_at(mine, cost)]
    times = {cost: [each.time(cost) for each in there] if there else None for cost in costs}
    gained = {c: gain(theirs, mine, target, c) if group != base else None for c in costs}
    # Where a policy looks at C, or times are real, nobody knows what another C would have given.
    fixed = any(run.config.get("sees_communication") or run.real for run in (*mine, *theirs))
    comparable = group != base and there and theirs_there and not fixed
    finals = [run.scores[-1].value for run in mine]
    behind = [fairness(run) for run in mine]
    return Row(
        method=group,
        seeds=[int(run.config["seed"]) for run in mine],
        final=fmean(finals),
        final_spread=pstdev(finals),
        time_to_target={c: fmean(each) if each else None for c, each in times.items()},
        time_spread={c: pstdev(each) if each else None for c, each in times.items()},
        speedup={c: each.speedup if each else None for c, each in gained.items()},
        speedup_spread={c: each.spread if each else None for c, each in gained.items()},
        break_even=break_even(theirs_there or [], there or []) if comparable else None,
        slower_half=_mean(each.slower for each in behind),
        slowest_tenth=_mean(each.slowest for each in behind),
        worst_tenth=_mean(each.worst for each in behind),
        never_heard=_mean(each.unheard for each in behind),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _kinds(groups: Mapping[str, Sequence[Results]], metric: Metric) -> str:
    """A warning where methods are judged by different kinds of evaluation; or nothing."""
    kinds: dict[str, list[str]] = {}
    for name, runs in groups.items():
        kinds.setdefault(runs[0].headline, []).append(name)
    if len(kinds) < 2:
        return ""
    told = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
    return f"{metric.title} is not the same for all ({told}): the glossary defines them"


def by_group(runs: Sequence[Results]) -> dict[str, list[Results]]:
    """The runs of each method, which differ in nothing but the seed; seeds in order."""
    groups: dict[str, list[Results]] = {}
    for run, group in zip(runs, groups_of(runs), strict=True):
        groups.setdefault(group, []).append(run)
    return {
        group: sorted(mine, key=lambda run: str(run.config.get("seed")).rjust(20))
        for group, mine in groups.items()
    }


def common_metric(runs: Sequence[Results]) -> Metric:
    """The metric that all runs are judged by; runs of several cannot be compared."""
    metrics = list(dict.fromkeys(run.judged_by for run in runs))
    if len(metrics) > 1:
        names = ", ".join(metric.title for metric in metrics)
        raise ConfigError(
            f"these runs are judged by different metrics ({names}): take those of one metric at a "
            "time"
        )
    return metrics[0] if metrics else Metric()


def reference(
    groups: Mapping[str, Sequence[Results]], baseline: str | None = None
) -> tuple[str, str | None]:
    """The baseline, and the method that it is to be compared with above all."""
    names = list(groups)
    if baseline is not None:
        named = [name for name in names if baseline in (name, groups[name][0].name)]
        if not named:
            raise unknown("baseline", baseline, names)
        base = named[0]
    else:
        pairs = [pair for name in names if (pair := _twin(name, groups)) is not None]
        # Not whichever comes first in the alphabet: what this library is about goes before.
        pairs.sort(key=lambda pair: groups[pair[1]][0].name != "srpfl")
        base = pairs[0][0] if pairs else names[0]
    partners = [name for name in names if (_twin(name, groups) or ("",))[0] == base]
    partners.sort(key=lambda name: groups[name][0].name != "srpfl")
    others = [*partners, *(name for name in names if name != base)]
    return base, others[0] if others else None


def target_of(
    groups: Mapping[str, Sequence[Results]],
    base: str,
    other: str | None,
    *,
    given: float | None = None,
) -> Target:
    """The target of a comparison: the best that the pair reached, loosened by 5 %."""
    metric = common_metric([run for mine in groups.values() for run in mine])
    pair = [name for name in (base, other) if name is not None]
    bests = {
        name: metric.best(point.value for run in mine for point in run.scores)
        for name, mine in groups.items()
        if any(run.scores for run in mine)
    }
    if given is None:
        reached = [
            metric.best(point.value for point in run.scores)
            for name in pair
            for run in groups[name]
            if run.scores
        ]
        value = metric.loosened(metric.worst(reached))
        names = f"{pair[0]} and {pair[1]} both" if len(pair) > 1 else pair[0]
        origin = f"5 % short of the best that {names} reached"
    else:
        value, origin = given, "given"
    best = metric.best(bests.values())
    leader = next(name for name, each in bests.items() if each == best)
    caution = ""
    if metric.reaches(best, value) and abs(best - value) > FAR * abs(best):
        caution = (
            f"the target is far from the best run ({leader}: {metric.shown(best)}), and early "
            "targets favour methods that do not wait: look at the speed-up against the target"
        )
    return Target(value, origin, caution)


def _twin(group: str, groups: Mapping[str, Sequence[Results]]) -> tuple[str, str] | None:
    """The method that does the same and waits for everyone, before the one that does not."""
    own = groups[group][0]
    if waits(own):
        return None
    twins = [
        name
        for name, runs in groups.items()
        if waits(runs[0]) and family(runs[0]) == family(own)
    ]  # fmt: skip
    mine = leaves(own.config)

    def alike(name: str) -> int:
        theirs = leaves(groups[name][0].config)
        return sum(theirs.get(leaf) == value for leaf, value in mine.items())

    return (max(twins, key=alike), group) if twins else None
