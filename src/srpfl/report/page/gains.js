// The speed-up against the target: a curve for each C, with a band over seeds.

const TARGETS = 60;

// From the first evaluation to the best that both reached, and at the target of the tables.
function gainPoints(slow, fast, cost) {
  if (!playedAt(slow, cost) || !playedAt(fast, cost)) return [];
  const seeds = [...members(slow), ...members(fast)].map((run) => points(run, costOf(run, cost)).map((point) => point.value));
  if (!seeds.length || !seeds.every((values) => values.length)) return [];
  const [worst, best] = metric().higher ? [smallest, largest] : [largest, smallest];
  const [from, to] = [worst(seeds.map((values) => values[0])), worst(seeds.map(best))];
  const steps = from === to ? 0 : TARGETS;
  const targets = Array.from({ length: steps + 1 }, (_, k) => (k === steps ? to : from + ((to - from) * k) / TARGETS));
  if (view.target !== null && (view.target - from) * (view.target - to) < 0) targets.push(view.target);
  targets.sort((a, b) => (to - from) * (a - b));
  return targets.map((target) => ({ target, ...gain(slow, fast, target, cost) })).filter((point) => point.speedup);
}

function drawGains() {
  const parent = byId("gains");
  const [slow, fast] = [baseline(), against()];
  const lines = slow && fast ? shownCosts().map((cost) => ({ cost, points: gainPoints(slow, fast, cost) })).filter((line) => line.points.length) : [];
  byId("gain").hidden = !lines.length;
  if (!lines.length) return parent.replaceChildren();
  const all = lines.flatMap((line) => line.points);
  const bounds = all.flatMap((p) => [above(p), below(p)]);
  const width = widthOf(parent);
  const targets = all.map((point) => drawn(point.target));
  const { root, xs, ys, margin } = frame(parent, {
    width, height: 300, x: [smallest(targets), largest(targets)], backwards: !metric().higher,
    y: [Math.min(0.8, smallest(bounds) / 1.1), Math.max(1.25, largest(bounds) * 1.1)], log: true, room: roomFor(["C = 1000"], width),
    xLabel: `target: ${metric().axis}`, yLabel: `times sooner than ${slow}`, label: `Speed-up of ${fast} over ${slow} against the target`,
  });
  root.append(svg("line", { class: "one", x1: margin.left, x2: width - margin.right, y1: ys(1), y2: ys(1) }));
  if (view.target !== null && drawn(view.target) >= smallest(targets) && drawn(view.target) <= largest(targets)) {
    const x = xs(drawn(view.target));
    root.append(svg("line", { class: "goal", x1: x, x2: x, y1: margin.top, y2: 260 }));
  }
  lines.forEach(({ cost, points }, i) => {
    const ink = stepColour(i, lines.length);
    const along = (of) => stairs(points.map((p) => [xs(drawn(p.target)), ys(of(p))]));
    if (points.some((p) => p.spread)) root.append(svg("path", { class: "band", fill: ink, d: bandOf(along(below), along(above)) }));
    root.append(svg("path", { class: "curve gain", d: pathOf(along((p) => p.speedup)), stroke: ink, "data-cost": cost }));
    if (points.length === 1) root.append(svg("circle", { cx: along((p) => p.speedup)[0][0], cy: along((p) => p.speedup)[0][1], r: 3.5, fill: ink }));
  });
  labelEnds(root, lines.map(({ cost, points }, i) => ({
    x: margin.right > 14 ? width - margin.right : xs(drawn(points[0].target)), y: ys(points[margin.right > 14 ? points.length - 1 : 0].speedup) - (margin.right > 14 ? 0 : 8),
    words: allReal() ? "" : `C = ${number(cost)}`, ink: stepColour(i, lines.length),
  })), 256);
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const target = xs.inverse(((event.clientX - box.left) * width) / box.width);
    const nearest = (points) => points.reduce((a, b) => (Math.abs(drawn(b.target) - target) < Math.abs(drawn(a.target) - target) ? b : a));
    const rows = lines.map(({ cost, points }) => [allReal() ? fast : `C = ${number(cost)}`, times(nearest(points))]);
    tip.show(event, ...tipRows(`target ${shown(nearest(lines[0].points).target)}`, rows));
  });
  root.addEventListener("pointerleave", tip.hide);
}

// A ratio's band is a factor to both sides: one that went as far down as up would end below 0.
const above = (p) => p.speedup + p.spread;
const below = (p) => p.speedup ** 2 / above(p);
const times = ({ speedup, spread }) => `${withSpread(speedup, spread, 3)}×`;

function drawPairChoices() {
  const groups = groupsOf(judged());
  for (const [id, chosen] of [["baseline", baseline()], ["against", against()]]) {
    options(byId(id), groups.map((group) => [group, group]), chosen);
  }
}
