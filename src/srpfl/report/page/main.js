// What is chosen, and drawing it anew when that or the runs change.

let CONTENT = JSON.parse(byId("content").textContent);
const view = { cost: 0, target: null, axis: "time", kind: "headline", hidden: new Set(), chosen: false };

const visible = () => CONTENT.runs.filter((run) => !view.hidden.has(run.group));

const SLIDER = 1000; // positions; the cost grows with their cube, so that small ones are within reach
const dearest = () => Math.max(200, ...CONTENT.runs.map((run) => 2 * run.communication));
const toCost = (position) => Number((dearest() * (position / SLIDER) ** 3).toPrecision(2));
const toPosition = (cost) => Math.round(SLIDER * Math.min(1, cost / dearest()) ** (1 / 3));

// On real clients communication is a part of the time, and there is no C to move.
const allReal = () => CONTENT.runs.length > 0 && CONTENT.runs.every((run) => run.real);

function setCost(cost) {
  view.cost = Math.max(0, cost);
  byId("cost").value = toPosition(view.cost);
  byId("cost-number").value = view.cost;
  drawCosts();
  drawCurves();
  drawTable();
}

function drawCosts() {
  const own = CONTENT.runs.map((run) => run.communication);
  const costs = [...new Set([0, 10, 100, ...own])].sort((a, b) => a - b);
  byId("costs").replaceChildren(...costs.map((cost) => html("button", {
    type: "button", "aria-pressed": String(cost === view.cost), onclick: () => {
      view.chosen = true;
      setCost(cost);
    },
  }, number(cost))));
  for (const id of ["cost-control", "costs", "cost-note"]) byId(id).hidden = allReal();
}

function drawLegend() {
  const groups = new Map(CONTENT.runs.map((run) => [run.group, run]));
  byId("legend").replaceChildren(...[...groups].map(([group, run]) => {
    const line = svg("svg", { viewBox: "0 0 26 8" }, svg("line", {
      x1: 0, x2: 26, y1: 4, y2: 4, "stroke-width": 3, stroke: colour(run), "stroke-dasharray": dash(run),
    }));
    const under = CONTENT.runs.filter((other) => other.group === group);
    const done = under.every((other) => other.over) ? "" : under.map((other) => `${other.rounds.length}/${other.planned}`).join(", ");
    return html("button", {
      type: "button", "aria-pressed": String(!view.hidden.has(group)), title: "hide or show",
      onclick: () => {
        if (!view.hidden.delete(group)) view.hidden.add(group);
        draw();
      },
    }, line, group, html("small", {}, done));
  }));
}

function drawHeader() {
  const runs = CONTENT.runs;
  const data = [...new Set(runs.map((run) => `${run.config.data.name}, ${run.config.data.clients} clients`))];
  byId("subtitle").textContent = runs.length
    ? `${runs.length} ${runs.length === 1 ? "run" : "runs"}: ${data.join("; ")}`
    : "no run yet: the page fills as soon as there is one";
  document.title = runs.length ? `srpfl: ${[...new Set(runs.map((run) => run.group))].join(", ")}` : "srpfl report";
  const kinds = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
  byId("kind").replaceChildren(html("option", { value: "headline" }, "each method's own"), ...kinds.map((kind) => html("option", { value: kind }, kind)));
  byId("kind").value = view.kind;
  byId("kind-control").hidden = kinds.length < 2;
  byId("footer").textContent = `Made by srpfl ${CONTENT.version}.` + (CONTENT.thinned > 1 ? ` Of the answers, every ${CONTENT.thinned}th is shown.` : "");
}

function draw() {
  if (!view.chosen) {
    const set = CONTENT.runs.filter((run) => run.fixed)[0] || CONTENT.runs[0];
    view.cost = set ? set.communication : 0;
    view.target = CONTENT.target;
  }
  byId("target").value = view.target === null ? "" : (100 * view.target).toFixed(1);
  drawHeader();
  drawLegend();
  setCost(view.cost);
  drawTimelines();
  drawClients();
  drawPartitions();
  drawSettings();
}

byId("cost").addEventListener("input", (event) => {
  view.chosen = true;
  setCost(toCost(event.target.value));
});
byId("cost-number").addEventListener("change", (event) => {
  view.chosen = true;
  setCost(Number(event.target.value) || 0);
});
byId("target").addEventListener("change", (event) => {
  view.chosen = true;
  view.target = event.target.value === "" ? null : Number(event.target.value) / 100;
  drawCurves();
  drawTable();
});
for (const name of ["axis", "kind"]) {
  byId(name).addEventListener("change", (event) => {
    view[name] = event.target.value;
    drawCurves();
    drawTable();
  });
}
byId("log").addEventListener("change", drawTimelines);
darkGround.addEventListener("change", draw);

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  draw();
});

draw();
if (CONTENT.live) follow();
