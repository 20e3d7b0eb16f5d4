// Several seeds as one curve, times to a target, speed-ups: as the library computes them.

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const deviation = (values) => {
  const middle = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - middle) ** 2)));
};

// The C that a run is shown at; null where it cannot be shown at the slider's.
function costOf(run, cost = view.cost) {
  if (!run.fixed) return cost;
  return run.real || run.communication === cost ? run.communication : null;
}

const playedAt = (group, cost) => members(group).every((run) => costOf(run, cost) !== null);

function points(run, cost) {
  const curve = run.curves[view.kind] || (view.kind === "headline" ? run.curves[run.headline] : null);
  if (!curve || cost === null) return [];
  return curve.round.map((round, i) => ({
    round, time: curve.computing[i] + cost * round, value: curve.value[i],
  }));
}

// The mean over seeds after each round that all of them evaluated.
function meanPoints(group, cost) {
  const seeds = members(group).map((run) => new Map(points(run, costOf(run, cost)).map((point) => [point.round, point])));
  return [...seeds[0].keys()].filter((round) => seeds.every((each) => each.has(round))).map((round) => {
    const there = seeds.map((each) => each.get(round));
    const values = there.map((point) => point.value);
    return { round, time: mean(there.map((point) => point.time)), value: mean(values), spread: deviation(values) };
  });
}

const reaches = (value, target) => (metric().higher ? value >= target : value <= target);

function timeTo(run, target, cost) {
  if (target === null) return null;
  const hit = points(run, cost).find((point) => reaches(point.value, target));
  return hit ? hit.time : null;
}

// Of all seeds of a method; null where not every one of them got there.
function timesTo(group, target, cost) {
  const times = members(group).map((run) => timeTo(run, target, costOf(run, cost)));
  return times.length && times.every((value) => value !== null) ? times : null;
}

function gain(slow, fast, target, cost) {
  const [before, after] = [timesTo(slow, target, cost), timesTo(fast, target, cost)];
  if (before === null || after === null || !after.every(Boolean)) return null;
  const seeds = (group) => JSON.stringify(members(group).map((run) => run.seed));
  const ratios = seeds(slow) === seeds(fast) ? before.map((time, i) => time / after[i]) : [];
  return { speedup: mean(before) / mean(after), spread: ratios.length > 1 ? deviation(ratios) : 0 };
}

const shownCosts = () => (allReal() ? [view.cost] : [...new Set([0, 10, 100, view.cost])].sort((a, b) => a - b));
