// The metric against time, for the C of the slider.

function drawCurves() {
  const parent = byId("curves");
  const along = view.axis === "time" ? (point) => point.time : (point) => point.round;
  const lines = groupsOf(visible()).map((group) => ({ group, run: members(group)[0], points: meanPoints(group, view.cost) }));
  const all = lines.flatMap((line) => line.points);
  const values = withBands(all);
  const log = canLog(values) && byId("value-log").checked;
  const held = withTarget(values, log);
  const [low, high] = log ? [smallest(held) / 1.1, largest(held) * 1.1] : ends(held, metric().share);
  byId("value-log-control").hidden = !canLog(values);
  const end = all.length ? Math.max(...all.map(along), 1e-9) : 1;
  const width = widthOf(parent);
  const { root, xs, ys, margin } = frame(parent, {
    width, height: 380, x: [0, end], y: [low, high], log, room: roomFor(lines.map((line) => line.group), width),
    xLabel: view.axis === "time" ? timeName(visible()) + costWords() : "round", yLabel: metric().axis,
    label: `${capital(metric().title)} against ${view.axis === "time" ? "time" : "rounds"}`,
  });
  const inside = view.target !== null && drawn(view.target) >= low && drawn(view.target) <= high;
  if (inside) {
    const y = ys(drawn(view.target));
    root.append(svg("line", { class: "goal", x1: margin.left, x2: xs(end), y1: y, y2: y }));
  }
  for (const { group, run, points } of lines) drawLine(root, { group, run, points, xs, ys, along, span: [low, high] });
  if (inside) {
    const y = ys(drawn(view.target)) + (metric().higher ? 14 : -5); // on the side that curves leave
    root.append(svg("text", { class: "over", x: xs(end) - 2, y, "text-anchor": "end" }, `target ${shown(view.target)}`));
  }
  if (margin.right > 14) {
    labelEnds(root, lines.filter((line) => line.points.length).map(({ group, run, points }) => ({
      x: xs(along(points.at(-1))), y: ys(drawn(points.at(-1).value)), words: group, ink: colour(run),
    })), 340);
  }
  hoverCurves(root, lines, { xs, ys, margin, along });
}

function drawLine(root, { group, run, points, xs, ys, along, span: [low, high] }) {
  const place = (point, away = 0) => [xs(along(point)), ys(Math.max(low, Math.min(high, drawn(point.value + away * point.spread))))];
  if (points.some((point) => point.spread)) {
    root.append(svg("path", { class: "band", d: bandOf(points.map((p) => place(p, -1)), points.map((p) => place(p, 1))), fill: colour(run) }));
  }
  root.append(svg("path", {
    class: "curve", d: pathOf(points.map((point) => place(point))) || "M0 0", stroke: colour(run), "stroke-dasharray": dash(run), "data-group": group,
  }));
  const marks = Math.floor(run.slot / CONTENT.palette.light.length); // colours that are used again
  const alone = points.length === 1; // no line: a dot
  if (!marks && !alone) return;
  const every = Math.max(1, Math.floor(points.length / 8));
  points.filter((_, i) => i % every === 0).map((point) => place(point)).forEach(([x, y]) => {
    root.append(alone || marks % 2
      ? svg("circle", { cx: x, cy: y, r: 3.5, fill: colour(run) })
      : svg("rect", { x: x - 3, y: y - 3, width: 6, height: 6, fill: colour(run) }));
  });
}

// What an axis must hold: the values, and the ends of their bands.
const withBands = (points) => points.flatMap(({ value, spread }) => (spread ? [drawn(value), drawn(value - spread), drawn(value + spread)] : [drawn(value)]));

// Where values of very different sizes follow each other, as perplexities may.
const canLog = (values) => !metric().share && smallest(values) > 0 && largest(values) > 5 * smallest(values);

// The target is in the picture too, unless it is so far away that the curves would shrink.
function withTarget(values, log) {
  if (view.target === null || metric().share || (log && view.target <= 0)) return values;
  const [least, most] = [smallest(values), largest(values)];
  const away = Math.max(least - view.target, view.target - most);
  return away < most - least ? [...values, view.target] : values;
}

function costWords() {
  return allReal() ? "" : ` at C = ${number(view.cost)}`;
}

function hoverCurves(root, lines, { xs, ys, margin, along }) {
  const height = root.viewBox.baseVal.height;
  const marks = svg("g", { visibility: "hidden" });
  const hair = svg("line", { class: "hair", y1: margin.top, y2: height - margin.bottom });
  marks.append(hair);
  root.append(marks);
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const place = xs.inverse(((event.clientX - box.left) * root.viewBox.baseVal.width) / box.width);
    const found = [];
    for (const { run, points } of lines) {
      const last = points.findLast((point) => along(point) <= place);
      if (last) found.push([run, last]);
    }
    if (!found.length) return leave();
    marks.replaceChildren(hair);
    hair.setAttribute("x1", xs(place));
    hair.setAttribute("x2", xs(place));
    for (const [run, point] of found) {
      marks.append(svg("circle", { cx: xs(along(point)), cy: ys(drawn(point.value)), r: 4, fill: colour(run) }));
    }
    marks.setAttribute("visibility", "visible");
    found.sort((a, b) => (metric().higher ? 1 : -1) * (b[1].value - a[1].value)); // the best first
    const title = view.axis === "time" ? `by time ${number(place, 4)}` : `by round ${Math.floor(place)}`;
    tip.show(event, ...tipRows(title, found.map(([run, p]) => [run, shown(p.value, p.spread), `round ${p.round}`, `time ${number(p.time, 4)}`])));
  });
  const leave = () => {
    marks.setAttribute("visibility", "hidden");
    tip.hide();
  };
  root.addEventListener("pointerleave", leave);
}
