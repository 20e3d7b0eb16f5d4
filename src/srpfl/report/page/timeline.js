// Each round's answers: who counted, who came too late, when the server continued.

function drawTimelines() {
  const parent = byId("timelines");
  parent.replaceChildren();
  const runs = chosenRuns().filter((run) => run.rounds.length);
  parent.classList.toggle("many", runs.length > 4);
  const answers = (sign) => runs.flatMap((run) => run.rounds.map((round) => largest([round.duration, ...round.times].map((time) => sign * time))));
  const [slowest, fastest] = [largest(answers(1)), -largest(answers(-1))];
  for (const run of runs) drawTimeline(parent, run, Math.max(fastest, slowest / 1e4), slowest);
}

function drawTimeline(parent, run, fastest, slowest) {
  const computing = run.rounds.at(-1).computing;
  const holder = html("div", {}, heading(run, `${run.rounds.length} rounds, ${number(computing, 4)} spent waiting`));
  parent.append(holder);
  const { node, pen, width, height } = canvas(holder, 250, `Answers by round, ${run.label}: ${run.rounds.length} rounds`);
  const [left, right, top, bottom] = [46, width - 8, 18, height - 34];
  const xs = scale(0.5, run.rounds.length + 0.5, left, right);
  const ys = byId("log").checked
    ? logScale(fastest / 1.3, slowest * 1.2, bottom, top)
    : scale(0, slowest * 1.04, bottom, top);
  verticalAxis(pen, ys, { left, right, ticks: ys.ticks(5), label: run.unit === "s" ? "answer after (s)" : "answer after" });
  for (const tick of niceTicks(1, run.rounds.length, Math.min(8, run.rounds.length)).filter((t) => t >= 1 && t % 1 === 0)) {
    textAt(pen, number(tick), xs(tick), bottom + 15, { align: "center" });
  }
  textAt(pen, "round", (left + right) / 2, height - 3, { align: "center" });

  const wide = xs(2) - xs(1);
  const size = Math.max(1.5, Math.min(4.5, wide * 0.7));
  const [ink, faint] = [colour(run), css("--faint")];
  run.rounds.forEach((round, i) => {
    round.times.forEach((time, k) => {
      pen.fillStyle = k < round.waited ? ink : faint;
      pen.globalAlpha = k < round.waited ? 0.8 : 0.5;
      pen.fillRect(xs(i + 1) - size / 2, ys(time) - size / 2, size, size);
    });
  });
  pen.globalAlpha = 1;
  drawStages(pen, run, { xs, top, bottom, right });
  pen.strokeStyle = css("--ink");
  pen.lineWidth = 1.5;
  pen.beginPath();
  run.rounds.forEach((round, i) => {
    pen.lineTo(xs(i + 0.5), ys(round.duration));
    pen.lineTo(xs(i + 1.5), ys(round.duration));
  });
  pen.stroke();
  hoverTimeline(node, run, xs, ys);
}

function drawStages(pen, run, { xs, top, bottom, right }) {
  const labels = [];
  run.rounds.forEach((round, i) => {
    const before = run.rounds[i - 1];
    if (before && before.stage === round.stage && before.wait === round.wait) return;
    const x = Math.round(xs(i + 0.5)) + 0.5;
    if (before) {
      pen.strokeStyle = css("--faint");
      pen.setLineDash([3, 3]);
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x, top - 4);
      pen.lineTo(x, bottom);
      pen.stroke();
      pen.setLineDash([]);
    }
    labels.push([x + 3, `n = ${round.wait}`]);
  });
  // The last one always has its place; of the others, those that are not in its way.
  const last = labels.pop();
  if (!last) return;
  const lastAt = Math.max(0, Math.min(last[0], right - pen.measureText(last[1]).width));
  let free = 0;
  for (const [x, words] of labels) {
    const room = pen.measureText(words).width;
    if (x < free || x + room + 4 > lastAt) continue;
    textAt(pen, words, x, top - 6, { ink: css("--ink") });
    free = x + room + 4;
  }
  textAt(pen, last[1], lastAt, top - 6, { ink: css("--ink") });
}

function hoverTimeline(node, run, xs, ys) {
  node.addEventListener("pointermove", (event) => {
    const box = node.getBoundingClientRect();
    const i = Math.round(xs.inverse(event.clientX - box.left)) - 1;
    const round = run.rounds[i];
    if (!round) return tip.hide();
    const y = event.clientY - box.top;
    let nearest = -1;
    let distance = 8;
    round.times.forEach((time, k) => {
      const away = Math.abs(ys(time) - y);
      if (away < distance) [nearest, distance] = [k, away];
    });
    const rows = [
      ["stage", String(round.stage)],
      ["waited for", `${round.wait} of ${round.asked}`],
      ["continued after", number(round.duration)],
      ["time so far", number(round.computing + (costOf(run) ?? run.communication) * (i + 1), 4)],
    ];
    if (nearest >= 0) {
      const verdict = nearest < round.waited ? "counted" : "too late";
      rows.push([`client ${round.clients[nearest]}`, `${number(round.times[nearest])}, ${verdict}`]);
    }
    for (const [name, value] of Object.entries(round.decision || {})) {
      rows.push([name, typeof value === "number" ? number(value) : String(value)]);
    }
    tip.show(event, ...tipRows(`round ${i + 1}`, rows));
  });
  node.addEventListener("pointerleave", tip.hide);
}
