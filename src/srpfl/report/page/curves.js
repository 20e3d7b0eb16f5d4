// Accuracy against time, for the C of the slider; and time to the target as a table.

// The C that a run is shown at; null where it cannot be shown at the slider's.
function costOf(run, cost = view.cost) {
  if (!run.fixed) return cost;
  return run.real || run.communication === cost ? run.communication : null;
}

function points(run, cost) {
  const curve = run.curves[view.kind] || (view.kind === "headline" ? run.curves[run.headline] : null);
  if (!curve || cost === null) return [];
  return curve.round.map((round, i) => ({
    round, time: curve.computing[i] + cost * round, accuracy: curve.accuracy[i],
  }));
}

function timeTo(run, target, cost) {
  if (target === null) return null;
  const hit = points(run, cost).find((point) => point.accuracy >= target);
  return hit ? hit.time : null;
}

function drawCurves() {
  const parent = byId("curves");
  const runs = visible();
  const along = view.axis === "time" ? (point) => point.time : (point) => point.round;
  const lines = runs.map((run) => ({ run, points: points(run, costOf(run)) }));
  const all = lines.flatMap((line) => line.points);
  const accuracies = all.map((point) => 100 * point.accuracy);
  const low = Math.max(0, Math.floor(Math.min(100, ...accuracies) / 10) * 10);
  const high = Math.min(100, Math.ceil((Math.max(0, ...accuracies) + 0.5) / 10) * 10);
  const end = Math.max(...all.map(along), 1e-9);
  const { root, xs, ys, margin } = frame(parent, {
    width: Math.max(300, parent.clientWidth), height: 380,
    x: [0, all.length ? end : 1], y: all.length ? [low, high] : [0, 100],
    xLabel: view.axis === "time" ? timeName(runs) + costWords() : "round", yLabel: "accuracy (%)",
    label: "Accuracy against time",
  });
  if (view.target !== null && 100 * view.target >= low && 100 * view.target <= high) {
    const y = ys(100 * view.target);
    root.append(svg("line", { class: "goal", x1: margin.left, x2: xs(end), y1: y, y2: y }));
    root.append(svg("text", { x: xs(end) - 2, y: y - 5, "text-anchor": "end" }, `target ${(100 * view.target).toFixed(1)} %`));
  }
  for (const { run, points } of lines) {
    const path = points.map((p, i) => `${i ? "L" : "M"}${xs(along(p)).toFixed(1)} ${ys(100 * p.accuracy).toFixed(1)}`);
    root.append(svg("path", {
      class: "curve", d: path.join("") || "M0 0", stroke: colour(run), "stroke-dasharray": dash(run), "data-run": run.label,
    }));
  }
  hoverCurves(root, lines, { xs, ys, margin, along });
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
    const place = xs.inverse(event.clientX - box.left);
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
      marks.append(svg("circle", { cx: xs(along(point)), cy: ys(100 * point.accuracy), r: 4, fill: colour(run) }));
    }
    marks.setAttribute("visibility", "visible");
    found.sort((a, b) => b[1].accuracy - a[1].accuracy);
    const title = view.axis === "time" ? `by time ${number(place, 4)}` : `by round ${Math.floor(place)}`;
    tip.show(event, ...tipRows(title, found.map(([run, p]) => [run, percent(p.accuracy), `round ${p.round}`, `time ${number(p.time, 4)}`])));
  });
  const leave = () => {
    marks.setAttribute("visibility", "hidden");
    tip.hide();
  };
  root.addEventListener("pointerleave", leave);
}

// One row for each group of seeds. The mean stands only where every seed got there.
function drawTable() {
  const parent = byId("table");
  const groups = [...new Set(CONTENT.runs.map((run) => run.group))];
  const members = (group) => CONTENT.runs.filter((run) => run.group === group);
  const costs = allReal() ? [view.cost] : [...new Set([0, 10, 100, view.cost])].sort((a, b) => a - b);
  const at = (cost) => (allReal() ? "" : `C = ${number(cost)}`);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const time = (group, cost) => {
    const times = members(group).map((run) => timeTo(run, view.target, costOf(run, cost)));
    return times.every((value) => value !== null) ? mean(times) : null;
  };
  const twin = (group) => {
    const wanted = members(group)[0].twin;
    return groups.find((other) => members(other)[0].name === wanted) || groups[0];
  };
  const shown = (group, cost) => members(group).every((run) => costOf(run, cost) !== null);
  const now = (cost) => ({ class: cost === view.cost ? "now" : "" });
  const head = html("tr", {}, html("th", {}, "method"), html("th", {}, "last accuracy"));
  for (const cost of costs) head.append(html("th", now(cost), "time to target", html("br"), at(cost)));
  head.append(html("th", {}, "speed-up", html("br"), "over"));
  for (const cost of costs) head.append(html("th", now(cost), "speed-up", html("br"), at(cost)));
  const body = html("tbody");
  for (const group of groups) {
    const last = members(group).map((run) => points(run, 0).at(-1)).filter(Boolean);
    const seeds = members(group).length > 1 ? ` (${members(group).length} seeds)` : "";
    const row = html("tr", { "data-group": group },
      html("td", {}, swatch(members(group)[0]), group + seeds),
      html("td", {}, last.length ? percent(mean(last.map((point) => point.accuracy))) : "–"));
    for (const cost of costs) {
      const value = time(group, cost);
      const words = !shown(group, cost) ? "–" : value === null ? "not reached" : number(value, 4);
      row.append(html("td", { class: `${now(cost).class} ${value === null ? "none" : ""}` }, words));
    }
    row.append(html("td", { class: "none" }, twin(group) === group ? "" : twin(group)));
    for (const cost of costs) {
      const [slow, fast] = [time(twin(group), cost), time(group, cost)];
      const words = twin(group) === group ? "" : slow !== null && fast ? `${(slow / fast).toFixed(2)}×` : "–";
      row.append(html("td", now(cost), words));
    }
    body.append(row);
  }
  parent.replaceChildren(html("table", {}, html("thead", {}, head), body));
  const hidden = CONTENT.runs.filter((run) => costOf(run) === null);
  byId("hidden-note").textContent = hidden
    .map((run) => `${run.label} was played with C = ${number(run.communication)} and its policy looks at C, so it is shown only there.`)
    .join(" ");
}
