// The controls, and drawing when what is chosen or the runs change.

// Costs that are worth a step of the slider: one, two, five and some between, of every size.
function sliderCosts() {
  const most = Math.max(200, ...judged().map((run) => 2 * run.communication));
  const found = [0];
  for (let e = -2; 10 ** e <= most; e++) for (const factor of [1, 1.5, 2, 3, 4, 5, 6, 8]) found.push(Number((factor * 10 ** e).toPrecision(2)));
  return found.filter((cost) => cost <= most);
}

// The slider's own place is not written back while it moves: a rounded value would hold it fast.
function setCost(cost, { from = null } = {}) {
  tip.hide();
  view.cost = Math.max(0, cost);
  const costs = sliderCosts();
  const slider = byId("cost");
  slider.max = costs.length - 1;
  if (from !== "slider") slider.value = costs.findLastIndex((each) => each <= view.cost);
  slider.setAttribute("aria-valuetext", `C = ${number(view.cost)}`);
  if (from !== "number") byId("cost-number").value = view.cost;
  drawCosts();
  drawCurves();
  drawTable();
  drawGains();
  drawReplay();
  remember();
}

function chooseCost(cost, from) {
  view.chosen = true;
  setCost(cost, { from });
}

// Buttons stay the same nodes, so that none loses the focus by being pressed.
function keep(parent, names, make) {
  const there = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const nodes = names.map((name) => there.get(name) || make(name));
  if (nodes.length !== parent.children.length || nodes.some((node, i) => node !== parent.children[i])) parent.replaceChildren(...nodes);
  return nodes;
}

function options(select, choices, chosen) {
  const before = [...select.options].map((option) => `${option.value} ${option.textContent}`).join();
  if (before !== choices.map(([value, words]) => `${value} ${words}`).join()) select.replaceChildren(...choices.map(([value, words]) => html("option", { value }, words)));
  select.value = chosen;
}

function drawCosts() {
  const own = judged().map((run) => run.communication);
  const costs = [...new Set([0, 10, 100, ...own])].sort((a, b) => a - b);
  const nodes = keep(byId("costs"), costs.map(String), (name) => html("button", { type: "button", "data-key": name, onclick: () => chooseCost(Number(name)) }, number(Number(name))));
  nodes.forEach((node) => node.setAttribute("aria-pressed", String(Number(node.dataset.key) === view.cost)));
  for (const id of ["cost-control", "costs"]) byId(id).hidden = allReal();
}

function drawLegend() {
  const nodes = keep(byId("legend"), groupsOf(judged()), (group) => html("button", {
    type: "button", "data-key": group, title: "hide or show",
    onclick: () => {
      if (!view.hidden.delete(group)) view.hidden.add(group);
      draw();
    },
  }));
  for (const node of nodes) {
    const under = members(node.dataset.key);
    const open = under.filter((run) => run.status.state !== "finished");
    const words = open.map((run) => progress(run) + (run.status.state === "running" ? "" : ` ${run.status.state}`));
    node.replaceChildren(swatch(under[0]), node.dataset.key, ...(words.length ? [html("small", {}, words.join(", "))] : []));
    node.setAttribute("aria-pressed", String(!view.hidden.has(node.dataset.key)));
  }
}

function drawHeader() {
  const runs = judged();
  const groups = groupsOf(runs);
  const methods = groups.length > 4 ? `${groups.length} methods` : groups.join(groups.length === 2 ? " and " : ", ");
  const title = CONTENT.title || (runs.length ? `${methods} on ${runs[0].config.data.name}` : "srpfl report");
  byId("title").textContent = title;
  document.title = CONTENT.title || (runs.length ? `srpfl: ${groups.join(", ")}` : "srpfl report");
  const made = new Date(CONTENT.made).toLocaleString(undefined, { dateStyle: "long", timeStyle: "short" });
  byId("subtitle").textContent = runs.length
    ? `${runs.length} ${runs.length === 1 ? "run" : "runs"}: ${board().data}; ${made}`
    : "no run yet: the page fills as soon as there is one";
  const kinds = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
  if (!kinds.includes(view.kind)) view.kind = "headline";
  options(byId("kind"), [["headline", "each method's own"], ...kinds.map((kind) => [kind, kind])], view.kind);
  byId("kind-control").hidden = kinds.length < 2;
  byId("axis").value = view.axis;
  byId("headline").textContent = `${capital(metric().title)} against ${view.axis === "time" ? "time" : "rounds"}`;
  for (const node of document.querySelectorAll(".client-value")) node.textContent = node.matches(".start") ? capital(metric().title) : metric().title;
  byId("target-unit").textContent = metric().share ? "%" : "";
  byId("board-note").hidden = CONTENT.boards.length < 2;
  options(byId("board"), CONTENT.boards.map(({ data, title }, i) => [String(i), `${data}: ${title}`]), String(CONTENT.boards.indexOf(board())));
  const seeds = [...new Set(runs.map((run) => run.seed))].sort((a, b) => a - b);
  if (view.seed !== null && !seeds.includes(view.seed)) view.seed = null;
  options(byId("seed"), seeds.map((seed) => [String(seed), String(seed)]), String(view.seed ?? seeds[0]));
  for (const node of document.querySelectorAll(".seed-control")) node.hidden = seeds.length < 2;
  byId("footer").textContent = `Made by srpfl ${CONTENT.version}.` + (CONTENT.thinned > 1 ? ` There are so many answers that only every ${CONTENT.thinned}th is shown, and no replay: give fewer runs for that.` : "");
}

function draw() {
  document.documentElement.dataset.ground = isDark() ? "dark" : "light";
  if (!view.chosen) {
    const set = judged().find((run) => run.fixed) || judged()[0];
    view.cost = set ? set.communication : 0;
    view.target = board().target;
  }
  byId("target").value = view.target === null ? "" : metric().share ? (100 * view.target).toFixed(1) : view.target;
  drawHeader();
  drawStates();
  drawLegend();
  drawPairChoices();
  setCost(view.cost);
  drawTimelines();
  drawTenths();
  drawBehind();
  drawClients();
  drawHistories();
  drawPartitions();
  drawSettings();
}

byId("cost").addEventListener("input", (event) => chooseCost(sliderCosts()[Number(event.target.value)], "slider"));
byId("cost-number").addEventListener("change", (event) => chooseCost(Number(event.target.value) || 0, "number"));
byId("target").addEventListener("change", (event) => {
  view.chosen = true;
  view.target = event.target.value === "" ? null : Number(event.target.value) / (metric().share ? 100 : 1);
  setCost(view.cost);
});
for (const name of ["axis", "kind", "baseline", "against"]) {
  byId(name).addEventListener("change", (event) => {
    view[name] = event.target.value;
    drawHeader();
    drawPairChoices();
    setCost(view.cost);
  });
}
byId("board").addEventListener("change", (event) => {
  Object.assign(view, { board: Number(event.target.value), kind: "headline", chosen: false, hidden: new Set(), baseline: null, against: null });
  draw();
});
byId("seed").addEventListener("change", (event) => {
  view.seed = Number(event.target.value);
  draw();
});
for (const id of ["pair-x", "pair-y"]) {
  byId(id).addEventListener("change", (event) => {
    event.target.dataset.asked = event.target.value;
    drawHistories();
  });
}
byId("value-log").addEventListener("change", drawCurves);
byId("log").addEventListener("change", drawTimelines);
darkGround.addEventListener("change", draw);
addEventListener("hashchange", () => { recall(); draw(); });
addEventListener("beforeprint", () => { printing = true; draw(); });
addEventListener("afterprint", () => { printing = false; draw(); });

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  draw();
});

recall();
draw();
if (CONTENT.live) follow();
