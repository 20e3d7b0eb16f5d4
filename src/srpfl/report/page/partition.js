// Who holds which classes; runs on the same data share one picture.

function drawPartitions() {
  const parent = byId("partitions");
  parent.replaceChildren();
  const pictures = new Map();
  for (const run of chosenRuns()) {
    if (!run.counts) continue;
    const order = run.clients.map((client) => client[CLIENT]);
    const key = JSON.stringify([run.counts, order]);
    if (!pictures.has(key)) pictures.set(key, { run, order, labels: [] });
    pictures.get(key).labels.push(run.label);
  }
  for (const picture of pictures.values()) drawPartition(parent, picture);
  byId("partition").hidden = pictures.size === 0;
}

function drawPartition(parent, { run, order, labels }) {
  const counts = run.counts;
  const classes = counts[0].length;
  const total = counts.flat().reduce((sum, count) => sum + count, 0);
  const who = labels.length > 3 ? `${labels.length} runs` : labels.join(", ");
  const holder = html("div", {}, html("h3", {}, run.config.data.name, html("small", {}, `${order.length} clients, ${total} training points; ${who}`)));
  parent.append(holder);
  const row = Math.max(3, Math.min(18, 360 / classes));
  const { node, pen, width, height } = canvas(holder, 8 + row * classes + 34, `Training points by client and class, ${run.config.data.name}`);
  const [left, right, top, bottom] = [46, width - 8, 8, 8 + row * classes];
  const xs = scale(0, order.length, left, right);
  const ys = scale(0, classes, top, bottom);
  const most = largest(counts.flat());
  const wide = xs(1) - xs(0);
  const gap = wide > 5 ? 1 : 0;
  pen.fillStyle = css("--raised");
  pen.fillRect(left, top, right - left, bottom - top);
  order.forEach((client, i) => counts[client].forEach((count, kind) => {
    if (!count) return;
    pen.fillStyle = `rgba(${css("--heat")}, ${0.15 + (0.85 * count) / most})`;
    pen.fillRect(xs(i), ys(kind), wide - gap, row - (row > 5 ? 1 : 0));
  }));
  for (const kind of niceTicks(0, classes - 1, 8).filter((tick) => tick % 1 === 0)) {
    textAt(pen, String(kind), left - 6, ys(kind + 0.5) + 4, { align: "right" });
  }
  textAt(pen, "class", 11, (top + bottom) / 2, { align: "center", turn: -Math.PI / 2 });
  textAt(pen, "fastest", left, bottom + 16);
  textAt(pen, "slowest", right, bottom + 16, { align: "right" });
  textAt(pen, "clients by mean time of their answers", (left + right) / 2, height - 3, { align: "center" });

  node.addEventListener("pointermove", (event) => {
    const box = node.getBoundingClientRect();
    const client = order[Math.floor(xs.inverse(event.clientX - box.left))];
    const kind = Math.floor(ys.inverse(event.clientY - box.top));
    if (client === undefined || kind < 0 || kind >= classes) return tip.hide();
    const all = counts[client].reduce((sum, count) => sum + count, 0);
    tip.show(event, ...tipRows(`client ${client}`, [[`class ${kind}`, `${counts[client][kind]} points`], ["all classes", `${all} points`]]));
  });
  node.addEventListener("pointerleave", tip.hide);
}
