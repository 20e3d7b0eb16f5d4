// What was played: the four choices side by side, then each run's command and whole config.

function choice(value) {
  if (value === null || typeof value !== "object") return String(value);
  const { kind, ...rest } = value;
  const fields = Object.entries(rest)
    .filter(([, inner]) => inner !== null)
    .map(([name, inner]) => `${name}=${choice(inner)}`);
  return Array.isArray(value) ? value.map(choice).join(", ") : `${kind || ""}(${fields.join(", ")})`;
}

function drawSettings() {
  const open = new Set([...document.querySelectorAll("#configs details[open]")].map((node) => node.dataset.run));
  const names = ["algorithm", "participation", "clock", "seed"];
  const head = html("tr", {}, html("th", {}, "run"), ...names.map((name) => html("th", { style: "text-align:left" }, name)));
  const body = html("tbody");
  for (const run of CONTENT.runs) {
    body.append(html("tr", {}, html("td", {}, swatch(run), run.label), ...names.map((name) => html("td", {}, choice(run.config[name])))));
  }
  const parts = [html("div", { class: "wide" }, html("table", {}, html("thead", {}, head), body))];
  for (const run of CONTENT.runs) {
    const details = html("details", { "data-run": run.label }, html("summary", {}, `${run.label}: command and config`));
    if (open.has(run.label)) details.open = true;
    details.append(html("pre", { class: "command" }, run.command || (run.real ? "# played on Flower: see the config" : "# played from Python: srpfl.simulate(...) with the config below")));
    if (run.folder) details.append(html("p", { class: "note" }, `read from ${run.folder}`));
    details.append(html("pre", {}, JSON.stringify(run.config, null, 2)));
    parts.push(details);
  }
  byId("configs").replaceChildren(...parts);
}
