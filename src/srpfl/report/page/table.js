// Times to the target and speed-ups, one row for each method: two tables that fit a narrow page.

// On a phone each row is a block, and each cell says what it is.
function tableOf(caption, heads, rows, { now = -1 } = {}) {
  const head = html("tr", {}, ...heads.map((words, i) => html("th", { scope: "col", class: i === now ? "now" : "" }, words)));
  const body = html("tbody", {}, ...rows.map(({ run, cells }) => html("tr", run ? { "data-group": run.group } : {},
    ...cells.map((words, i) => (i ? html("td", { class: `${i === now ? "now" : ""} ${NONE.includes(words) ? "none" : ""}`, "data-head": heads[i] }, words)
      : html("th", { scope: "row" }, ...(run ? [swatch(run)] : []), words))))));
  return html("table", {}, html("caption", {}, caption), html("thead", {}, head), body);
}
const NONE = ["–", "not reached", ""];

function drawTable() {
  const parent = byId("table");
  const groups = groupsOf(visible());
  const costs = shownCosts();
  const at = (cost) => (allReal() ? "time" : `C = ${number(cost)}`);
  const named = (group) => group + (members(group).length > 1 ? ` (${members(group).length} seeds)` : "");
  const now = (before) => before + costs.indexOf(view.cost);
  const cell = (group, cost) => {
    if (!playedAt(group, cost)) return "–";
    const found = timesTo(group, view.target, cost);
    if (!found) return "not reached";
    return withSpread(mean(found), deviation(found), 4);
  };
  const last = (group) => {
    const ends = members(group).map((run) => points(run, 0).at(-1)).filter(Boolean).map((point) => point.value);
    return ends.length ? shown(mean(ends), deviation(ends)) : "–";
  };
  const rows = groups.map((group) => ({ run: members(group)[0], cells: [named(group), last(group), ...costs.map((cost) => cell(group, cost))] }));
  const tables = [tableOf(`Time to ${view.target === null ? "the target" : shown(view.target)}`, ["method", `last ${metric().title}`, ...costs.map(at)], rows, { now: now(2) })];
  const others = groups.filter((group) => group !== baseline());
  if (others.length && baseline()) {
    const gains = others.map((group) => ({
      run: members(group)[0],
      cells: [named(group), ...costs.map((cost) => {
        const found = gain(baseline(), group, view.target, cost);
        return found && playedAt(group, cost) && playedAt(baseline(), cost) ? times(found) : "–";
      })],
    })).filter(({ cells }) => cells.slice(1).some((words) => words !== "–")); // the others are not there yet
    if (gains.length) tables.push(tableOf(`Speed-up over ${baseline()}`, ["method", ...costs.map((cost) => (allReal() ? "speed-up" : at(cost)))], gains, { now: now(1) }));
  }
  parent.replaceChildren(...(groups.length ? tables : [html("p", { class: "note" }, judged().length ? "All methods are hidden: press one above." : "")]));
  const hidden = visible().filter((run) => costOf(run) === null);
  byId("hidden-note").textContent = [...new Set(hidden.map((run) => `${run.group} was played with C = ${number(run.communication)} and its policy looks at C, so it is shown only there.`))].join(" ");
  drawTargetNote();
}

function drawTargetNote() {
  const own = view.target !== null && view.target === board().target;
  const words = own && board().origin && board().origin !== "given" ? [`Target ${shown(view.target)}: ${board().origin}.`] : [];
  if (own && board().caution) words.push(`Note: ${board().caution}.`);
  byId("target-note").textContent = words.join(" ");
  byId("target-note").classList.toggle("caution", Boolean(own && board().caution));
}
