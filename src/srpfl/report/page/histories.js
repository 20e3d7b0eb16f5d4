// Clients over time: a heat map of client and evaluation, and each client under two methods.

function drawHistories() {
  const parent = byId("histories");
  parent.replaceChildren();
  const runs = chosenRuns().filter((run) => run.history.values.length > 1 && run.clients.length);
  parent.classList.toggle("many", runs.length > 4);
  const values = runs.flatMap((run) => run.history.values.flat()).filter((value) => value !== null);
  const span = [smallest(values), largest(values)];
  const [worst, best] = metric().higher ? span : [...span].reverse();
  byId("heat-worst").textContent = shown(worst);
  byId("heat-best").textContent = shown(best);
  for (const run of runs) drawHistory(parent, run, span);
  byId("history").hidden = !runs.length;
  drawPairs(runs);
}

// The round in which each client's answer first counted; Infinity: never.
function firstHeard(run) {
  const first = new Map();
  run.rounds.forEach((round, i) => {
    for (const client of round.clients.slice(0, round.waited)) if (!first.has(client)) first.set(client, i + 1);
  });
  return (client) => first.get(client) ?? Infinity;
}

function drawHistory(parent, run, [low, high]) {
  const order = run.clients.map((client) => client[CLIENT]);
  const { round, values } = run.history;
  const holder = html("div", {}, heading(run, `${order.length} clients, ${values.length} evaluations`));
  parent.append(holder);
  const tall = Math.max(120, Math.min(300, 4 * order.length));
  const { node, pen, width, height } = canvas(holder, tall + 48, `${capital(metric().title)} of each client at each evaluation, ${run.label}`);
  const [left, right, top, bottom] = [54, width - 8, 6, 6 + tall];
  const xs = scale(0, values.length, left, right);
  const ys = scale(0, order.length, top, bottom);
  const heard = firstHeard(run);
  const strength = (value) => 0.06 + 0.94 * (metric().higher ? value - low : high - value) / (high - low || 1);
  pen.fillStyle = css("--raised");
  pen.fillRect(left, top, right - left, bottom - top);
  values.forEach((row, k) => order.forEach((client, i) => {
    const value = row[client];
    if (value === null || value === undefined) return;
    pen.fillStyle = `rgba(${css("--heat")}, ${strength(value).toFixed(3)})`;
    pen.fillRect(xs(k), ys(i), xs(k + 1) - xs(k) + 0.5, ys(i + 1) - ys(i) + 0.5);
  }));
  pen.strokeStyle = css("--mark");
  pen.lineWidth = 1.6;
  pen.beginPath();
  order.forEach((client, i) => {
    const k = round.findIndex((at) => at >= heard(client));
    const x = xs(k < 0 ? values.length : k);
    pen.moveTo(x, ys(i));
    pen.lineTo(x, ys(i + 1));
  });
  if (CONTENT.thinned === 1) pen.stroke(); // or nobody knows who was first heard when
  textAt(pen, "fastest", left - 6, top + 10, { align: "right" });
  textAt(pen, "slowest", left - 6, bottom, { align: "right" });
  const every = Math.max(1, Math.ceil(values.length / 8));
  const last = values.length - 1; // has its label; the others are counted from it
  round.forEach((at, k) => { if ((last - k) % every === 0) textAt(pen, String(at), xs(k + 0.5), bottom + 15, { align: "center" }); });
  textAt(pen, "evaluated after round", (left + right) / 2, height - 6, { align: "center" });
  node.addEventListener("pointermove", (event) => {
    const box = node.getBoundingClientRect();
    const k = Math.floor(xs.inverse(((event.clientX - box.left) * width) / box.width));
    const client = order[Math.floor(ys.inverse(event.clientY - box.top))];
    if (client === undefined || !values[k]) return tip.hide();
    const first = heard(client);
    tip.show(event, ...tipRows(`client ${client} after round ${round[k]}`, [
      [metric().title, shown(values[k][client])], ...(CONTENT.thinned > 1 ? [] : [["first heard", first === Infinity ? "never" : `round ${first}`]]),
    ]));
  });
  node.addEventListener("pointerleave", tip.hide);
}

function drawPairs(runs) {
  const parent = byId("pairs");
  const groups = runs.map((run) => run.group);
  byId("pair").hidden = groups.length < 2;
  const [x, y] = [["pair-x", baseline(), 0], ["pair-y", against(), 1]].map(([id, wanted, place]) => {
    const { asked } = byId(id).dataset; // by the reader: what stands there may only stand in for it
    const chosen = groups.includes(asked) ? asked : groups.includes(wanted) ? wanted : groups[place] || groups[0];
    options(byId(id), groups.map((group) => [group, group]), chosen);
    return runs.find((run) => run.group === chosen);
  });
  if (!x || !y) return parent.replaceChildren();
  const other = new Map(y.clients.map((client) => [client[CLIENT], client[VALUE]]));
  const pairs = x.clients.map((client, i) => ({ client: client[CLIENT], speed: i / Math.max(1, x.clients.length - 1), x: client[VALUE], y: other.get(client[CLIENT]) }))
    .filter((pair) => pair.x !== null && pair.y !== null && pair.y !== undefined);
  if (!pairs.length) return parent.replaceChildren();
  const span = ends(pairs.flatMap((pair) => [drawn(pair.x), drawn(pair.y)]), metric().share);
  const width = Math.max(280, Math.min(460, parent.clientWidth));
  const { root, xs, ys } = frame(parent, {
    width, height: 400, x: span, y: span, xLabel: `${metric().axis}, ${x.group}`, yLabel: `${metric().axis}, ${y.group}`,
    label: `${capital(metric().title)} of each client under ${x.group} and under ${y.group}`,
  });
  root.append(svg("line", { class: "even", x1: xs(span[0]), y1: ys(span[0]), x2: xs(span[1]), y2: ys(span[1]) }));
  for (const pair of pairs) {
    root.append(svg("circle", { class: "pair", cx: xs(drawn(pair.x)), cy: ys(drawn(pair.y)), r: 4, fill: stepColour(Math.round(4 * pair.speed), 5), "fill-opacity": 0.8 }));
  }
  const gained = (pair) => (metric().higher ? pair.y - pair.x : pair.x - pair.y);
  const count = (wanted) => pairs.filter((pair) => Math.sign(gained(pair)) === wanted).length;
  parent.append(html("p", { class: "note" }, `Under ${y.group}, ${count(1)} ${count(1) === 1 ? "client is" : "clients are"} better off than under ${x.group}, ${count(-1)} worse off and ${count(0)} as well off. ${isDark() ? "Light" : "Dark"} dots are fast clients.`));
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const [px, py] = [((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * 400) / box.height];
    const far = (pair) => Math.hypot(xs(drawn(pair.x)) - px, ys(drawn(pair.y)) - py);
    const nearest = pairs.reduce((a, b) => (far(b) < far(a) ? b : a));
    if (far(nearest) > 20) return tip.hide();
    tip.show(event, ...tipRows(`client ${nearest.client}`, [[x, shown(nearest.x)], [y, shown(nearest.y)]]));
  });
  root.addEventListener("pointerleave", tip.hide);
}
