// Taking things along: text to the clipboard, charts as SVG or PNG, numbers as CSV.

function withCopy(text, kind = "") {
  const words = html("pre", { class: kind, tabindex: "0", "aria-label": kind || "config" }, text);
  const button = html("button", { type: "button", class: "copy", onclick: async () => {
    const done = await copied(text);
    if (!done) getSelection().selectAllChildren(words);
    button.textContent = done ? "Copied" : "Press Ctrl-C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  } }, "Copy");
  return html("div", { class: "copied" }, words, button);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = html("textarea", { "aria-hidden": "true", class: "off" }, text); // the old way
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

function download(name, kind, text) {
  const link = html("a", { download: name, href: kind.startsWith("data:") ? kind : `data:${kind};charset=utf-8,${encodeURIComponent(text)}` });
  document.body.append(link);
  link.click();
  link.remove();
}

// A chart with its colours in it: outside of the page there is no style sheet.
function svgText(root) {
  const copy = root.cloneNode(true);
  const { width, height } = root.viewBox.baseVal;
  for (const [name, value] of Object.entries({ xmlns: SVG, width, height })) copy.setAttribute(name, value);
  const rules = `text{fill:${css("--soft")};font:12px sans-serif}.grid{stroke:${css("--line")}}.axis{stroke:${css("--faint")}}`
    + `.curve{fill:none;stroke-width:2}.band{fill-opacity:.15}.goal{stroke:${css("--soft")};stroke-dasharray:2 4}.one,.even{stroke:${css("--ink")}}`;
  copy.prepend(svg("style", {}, rules), svg("rect", { width, height, fill: css("--ground") }));
  return new XMLSerializer().serializeToString(copy);
}

// All canvases of a section, one below the other, each under its name.
function pngOf(parent) {
  const all = [...parent.querySelectorAll("canvas")];
  const line = 22 * (devicePixelRatio || 1);
  const whole = html("canvas");
  whole.width = Math.max(...all.map((one) => one.width));
  whole.height = all.reduce((sum, one) => sum + one.height + line, 0);
  const pen = whole.getContext("2d");
  pen.fillStyle = css("--ground");
  pen.fillRect(0, 0, whole.width, whole.height);
  pen.font = `${0.65 * line}px sans-serif`;
  let y = 0;
  for (const one of all) {
    textAt(pen, one.getAttribute("aria-label"), 8, y + 0.75 * line, { ink: css("--ink") });
    pen.drawImage(one, 0, y + line);
    y += one.height + line;
  }
  return whole.toDataURL("image/png");
}

const TABLES = {
  curves: () => [["method", "seed", "evaluation", "round", "time", "value"], ...visible().flatMap((run) => points(run, costOf(run)).map((p) => [run.group, run.seed, view.kind === "headline" ? run.headline : view.kind, p.round, p.time, p.value]))],
  gains: () => [["method", "baseline", "C", "target", "speed-up", "deviation"], ...shownCosts().flatMap((cost) => gainPoints(baseline(), against(), cost).map((p) => [against(), baseline(), cost, p.target, p.speedup, p.spread]))],
  timelines: () => [["method", "seed", "round", "client", "time", "counted"], ...chosenRuns().flatMap((run) => run.rounds.flatMap((round, i) => round.times.map((time, k) => [run.group, run.seed, i + 1, round.clients[k], time, k < round.waited ? 1 : 0])))],
  clients: () => [["method", "seed", "client", "mean time", "value", "weight", "counted", "late"], ...visible().flatMap((run) => run.clients.map((client) => [run.group, run.seed, ...client]))],
};

function csvText(rows) {
  const cell = (value) => (value === null || value === undefined ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

for (const button of document.querySelectorAll("[data-save]")) {
  const { save, of } = button.dataset;
  button.setAttribute("aria-label", `Download ${of} as ${save.toUpperCase()}`);
  button.addEventListener("click", () => {
    if (save === "csv") download(`${of}.csv`, "text/csv", csvText(TABLES[of]()));
    else if (save === "svg") download(`${of}.svg`, "image/svg+xml", svgText(byId(of).querySelector("svg")));
    else if (byId(of).querySelector("canvas")) download(`${of}.png`, pngOf(byId(of)));
  });
}
