// Client by client, from the fastest to the slowest: accuracy above, participation below.

const [CLIENT, SPEED, ACCURACY, TESTED, COUNTED, LATE] = [0, 1, 2, 3, 4, 5];

function drawClients() {
  const parent = byId("clients");
  parent.replaceChildren();
  parent.classList.toggle("many", visible().length > 4);
  for (const run of visible()) {
    if (run.clients.length) drawClientPanel(parent, run);
  }
  if (!parent.children.length) parent.append(html("p", { class: "note" }, "There are too many clients to show them one by one."));
}

function halfMean(clients) {
  const tested = clients.filter((client) => client[ACCURACY] !== null);
  const total = tested.reduce((sum, client) => sum + client[TESTED], 0);
  return total ? tested.reduce((sum, client) => sum + client[ACCURACY] * client[TESTED], 0) / total : null;
}

function drawClientPanel(parent, run) {
  const half = Math.floor(run.clients.length / 2);
  const fast = halfMean(run.clients.slice(0, half));
  const slow = halfMean(run.clients.slice(run.clients.length - half));
  const words = fast === null ? "not evaluated yet" : `faster half ${percent(fast)}, slower half ${percent(slow)}`;
  const holder = html("div", {}, heading(run, words));
  parent.append(holder);
  const { node, pen, width, height } = canvas(holder, 300, `Accuracy and participation by client, ${run.label}`);
  const [left, right] = [46, width - 8];
  const xs = scale(-0.5, run.clients.length - 0.5, left, right);
  const wide = xs(1) - xs(0);

  const ys = scale(0, 100, 178, 8);
  verticalAxis(pen, ys, { left, right, ticks: [0, 25, 50, 75, 100], label: "accuracy (%)" });
  const size = Math.max(2, Math.min(6, wide * 0.75));
  pen.fillStyle = colour(run);
  run.clients.forEach((client, i) => {
    if (client[ACCURACY] === null) return;
    pen.beginPath();
    pen.arc(xs(i), ys(100 * client[ACCURACY]), size / 2, 0, 7);
    pen.fill();
  });
  pen.strokeStyle = css("--ink");
  pen.lineWidth = 1.5;
  for (const [value, from, to] of [[fast, -0.5, half - 0.5], [slow, run.clients.length - half - 0.5, run.clients.length - 0.5]]) {
    if (value === null) continue;
    pen.beginPath();
    pen.moveTo(xs(from) + 2, ys(100 * value));
    pen.lineTo(xs(to) - 2, ys(100 * value));
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
      ["accuracy", `${percent(client[ACCURACY])} of ${client[TESTED]} points`],
      ["mean time", number(client[SPEED])],
      ["counted", `${client[COUNTED]} rounds`],
      ["late", `${client[LATE]} rounds`],
    ]));
  });
  node.addEventListener("pointerleave", tip.hide);
}
