// Client by client, from the fastest to the slowest: the metric above, participation below.

const [CLIENT, SPEED, VALUE, WEIGHT, COUNTED, LATE] = [0, 1, 2, 3, 4, 5];

function drawClients() {
  const parent = byId("clients");
  parent.replaceChildren();
  const runs = chosenRuns();
  parent.classList.toggle("many", runs.length > 4);
  const values = runs.flatMap((run) => run.clients.map((client) => client[VALUE])).filter((value) => value !== null);
  const span = metric().share ? [0, 100] : ends([0, ...values], false); // the same for all
  for (const run of runs) {
    if (run.clients.length) drawClientPanel(parent, run, span);
  }
  const many = runs.filter((run) => !run.clients.length && run.population > 0);
  if (many.length) parent.append(html("p", { class: "note" }, `${many.map((run) => run.group).join(", ")}: ${many[0].population} clients are too many to show one by one.`));
}

function drawClientPanel(parent, run, [low, high]) {
  const half = Math.floor(run.clients.length / 2);
  const [fast, slow] = run.halves;
  const words = fast === null ? "not evaluated yet" : `faster half ${shown(fast)}, slower half ${shown(slow)}`;
  const holder = html("div", {}, heading(run, words));
  parent.append(holder);
  const { node, pen, width, height } = canvas(holder, 300, `${capital(metric().title)} and participation by client, ${run.label}`);
  const [left, right] = [46, width - 8];
  const xs = scale(-0.5, run.clients.length - 0.5, left, right);
  const wide = xs(1) - xs(0);

  const ys = scale(low, high, 178, 8);
  verticalAxis(pen, ys, { left, right, ticks: metric().share ? [0, 25, 50, 75, 100] : ys.ticks(5), label: metric().axis });
  const size = Math.max(2, Math.min(6, wide * 0.75));
  pen.fillStyle = colour(run);
  run.clients.forEach((client, i) => {
    if (client[VALUE] === null) return;
    pen.beginPath();
    pen.arc(xs(i), ys(drawn(client[VALUE])), size / 2, 0, 7);
    pen.fill();
  });
  pen.strokeStyle = css("--ink");
  pen.lineWidth = 1.5;
  for (const [value, from, to] of [[fast, -0.5, half - 0.5], [slow, run.clients.length - half - 0.5, run.clients.length - 0.5]]) {
    if (value === null) continue;
    pen.beginPath();
    pen.moveTo(xs(from) + 2, ys(drawn(value)));
    pen.lineTo(xs(to) - 2, ys(drawn(value)));
    pen.stroke();
  }

  const most = Math.max(1, ...run.clients.map((client) => client[COUNTED] + client[LATE]));
  const bars = scale(0, most, height - 34, 196);
  verticalAxis(pen, bars, { left, right, ticks: niceTicks(0, most, 3), label: "rounds" });
  const bar = Math.max(1, wide - (wide > 4 ? 1 : 0));
  run.clients.forEach((client, i) => {
    const [counted, both] = [bars(client[COUNTED]), bars(client[COUNTED] + client[LATE])];
    pen.fillStyle = css("--line");
    pen.fillRect(xs(i) - bar / 2, both, bar, counted - both);
    pen.fillStyle = colour(run);
    pen.fillRect(xs(i) - bar / 2, counted, bar, bars(0) - counted);
  });
  textAt(pen, "fastest", left, height - 18);
  textAt(pen, "slowest", right, height - 18, { align: "right" });
  textAt(pen, "clients by mean time of their answers", (left + right) / 2, height - 3, { align: "center" });

  node.addEventListener("pointermove", (event) => {
    const i = Math.round(xs.inverse(event.clientX - node.getBoundingClientRect().left));
    const client = run.clients[i];
    if (!client) return tip.hide();
    tip.show(event, ...tipRows(`client ${client[CLIENT]}, ${i + 1} of ${run.clients.length} by speed`, [
      [metric().title, shown(client[VALUE])],
      ["test weight", number(client[WEIGHT], 6)],
      ["mean time", number(client[SPEED])],
      ["counted", `${client[COUNTED]} rounds`],
      ["late", `${client[LATE]} rounds`],
    ]));
  });
  node.addEventListener("pointerleave", tip.hide);
}
