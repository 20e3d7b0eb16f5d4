// The metric by tenths of the clients, from the fastest to the slowest; and who fell behind.

// Several clients taken together, as the library does it: the mean of what the metric is made of.
function pooled(pairs) {
  const [there, back] = { square: [(v) => v * v, Math.sqrt], logarithm: [Math.log, Math.exp] }[metric().pool] || [(v) => v, (v) => v];
  const tested = pairs.filter(([value, weight]) => value !== null && value !== undefined && weight);
  const total = tested.reduce((sum, [, weight]) => sum + weight, 0);
  return total ? back(tested.reduce((sum, [value, weight]) => sum + there(value) * weight, 0) / total) : null;
}

function tenthsOf(run) {
  const count = Math.min(10, run.clients.length);
  return Array.from({ length: count }, (_, k) => {
    const part = run.clients.slice(Math.round((k * run.clients.length) / count), Math.round(((k + 1) * run.clients.length) / count));
    return pooled(part.map((client) => [client[VALUE], client[WEIGHT]]));
  });
}

function drawTenths() {
  const parent = byId("tenths");
  const lines = groupsOf(visible()).map((group) => {
    const seeds = members(group).filter((run) => run.clients.length).map(tenthsOf);
    const parts = seeds.length ? seeds[0].map((_, k) => seeds.map((each) => each[k]).filter((value) => value !== null && value !== undefined)) : [];
    return { group, run: members(group)[0], points: parts.map((values, k) => ({ tenth: k + 1, value: values.length ? mean(values) : null, spread: values.length ? deviation(values) : 0 })).filter((point) => point.value !== null) };
  }).filter((line) => line.points.length);
  parent.hidden = !lines.length;
  if (!lines.length) return parent.replaceChildren();
  const span = ends(withBands(lines.flatMap((line) => line.points)), metric().share);
  const width = widthOf(parent);
  const count = Math.max(...lines.map((line) => line.points.length));
  const { root, xs, ys, margin } = frame(parent, {
    width, height: 260, x: [1, Math.max(2, count)], y: span, room: roomFor(lines.map((line) => line.group), width),
    xTicks: Array.from({ length: count }, (_, k) => k + 1), xFormat: (k) => (k === 1 ? (width < 640 ? "fast" : "fastest") : k === count ? (width < 640 ? "slow" : "slowest") : String(k)),
    xLabel: count === 10 ? "tenth of the clients, by mean time of their answers" : "clients, by mean time of their answers", yLabel: metric().axis,
    label: `${capital(metric().title)} by tenths of the clients, from the fastest to the slowest`,
  });
  for (const { group, run, points } of lines) drawLine(root, { group, run, points, xs, ys, along: (point) => point.tenth, span });
  root.querySelectorAll("path.curve").forEach((path) => path.classList.add("tenth"));
  if (margin.right > 14) labelEnds(root, lines.map(({ group, run, points }) => ({ x: xs(points.at(-1).tenth), y: ys(drawn(points.at(-1).value)), words: group, ink: colour(run) })), 220);
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const k = Math.max(1, Math.min(count, Math.round(xs.inverse(((event.clientX - box.left) * width) / box.width))));
    const found = lines.map(({ run, points }) => [run, points.find((point) => point.tenth === k)]).filter(([, point]) => point);
    tip.show(event, ...tipRows(`tenth ${k} of ${count} by speed`, found.map(([run, point]) => [run, shown(point.value, point.spread)])));
  });
  root.addEventListener("pointerleave", tip.hide);
}

function drawBehind() {
  const heads = ["method", "faster half", "slower half", "slowest tenth", "worst tenth", "heard", "never heard"];
  const told = (group, pick) => {
    const values = members(group).map(pick).filter((value) => value !== null && value !== undefined);
    return values.length ? shown(mean(values), deviation(values)) : "–";
  };
  const rows = groupsOf(visible()).map((group) => ({
    run: members(group)[0],
    cells: [group, told(group, (run) => run.halves[0]), told(group, (run) => run.halves[1]), ...[0, 1, 2, 3].map((k) => told(group, (run) => run.behind[k]))],
  }));
  byId("behind").replaceChildren(...(rows.length ? [tableOf(`${capital(metric().title)} of some clients`, heads, rows)] : []));
}
