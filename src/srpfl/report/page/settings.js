// What was played: the choices side by side, then each run's command and whole config.

function choice(value) {
  if (value === null || typeof value !== "object") return String(value);
  const { kind, ...rest } = value;
  const fields = Object.entries(rest)
    .filter(([, inner]) => inner !== null)
    .map(([name, inner]) => `${name}=${choice(inner)}`);
  return Array.isArray(value) ? value.map(choice).join(", ") : `${kind || ""}(${fields.join(", ")})`;
}

// Lines break after a bracket or a sign, not within a word.
function breakable(text) {
  return html("span", {}, ...text.split(/(?<=[(=])/).flatMap((part) => [part, html("wbr")]));
}

function drawSettings() {
  const open = new Set([...document.querySelectorAll("#configs details[open]")].map((node) => node.dataset.run));
  const names = ["algorithm", "participation", "clock", "task", "seed"].filter((name) => visible().some((run) => run.config[name] !== undefined && run.config[name] !== null));
  const rows = groupsOf(visible()).map((group) => {
    const run = members(group)[0];
    const seeds = members(group).map((each) => each.seed).join(", ");
    return { run, cells: [group, ...names.map((name) => (name === "seed" ? seeds : breakable(choice(run.config[name] ?? "–"))))] };
  });
  const parts = rows.length ? [tableOf("Choices", ["run", ...names], rows)] : [];
  for (const run of visible()) {
    const details = html("details", { "data-run": run.label }, html("summary", {}, `${run.label}: command and config`));
    if (open.has(run.label)) details.open = true;
    details.append(withCopy(run.command || (run.real ? "# played on Flower: see the config" : "# played from Python: srpfl.simulate(...) with the config below"), "command"));
    if (run.folder) details.append(html("p", { class: "note" }, `read from ${run.folder}`));
    details.append(withCopy(JSON.stringify(run.config, null, 2)));
    parts.push(details);
  }
  byId("configs").replaceChildren(...parts);
}
