// What is chosen, what that leaves to be shown, and both in the page's address.

let CONTENT = JSON.parse(byId("content").textContent);
const view = { board: 0, cost: 0, target: null, axis: "time", kind: "headline", hidden: new Set(), seed: null, baseline: null, against: null, chosen: false };

const board = () => CONTENT.boards[view.board] || CONTENT.boards[0];
const metric = board; // its title, axis, share, higher

// What is shown: the runs of one board, less those that the reader has hidden.
const judged = () => CONTENT.runs.filter((run) => run.board === CONTENT.boards.indexOf(board()));
const visible = () => judged().filter((run) => !view.hidden.has(run.group));
const groupsOf = (runs) => [...new Set(runs.map((run) => run.group))];
const members = (group) => judged().filter((run) => run.group === group);
// One run of each method, where runs are shown one by one.
const chosenRuns = () => groupsOf(visible()).map((group) => members(group).find((run) => run.seed === view.seed) || members(group)[0]);

const named = (group) => (group !== null && members(group).length ? group : null);
const baseline = () => named(view.baseline) || named(board().baseline) || groupsOf(judged())[0] || null;
const against = () => {
  const wanted = named(view.against) || named(board().against);
  return wanted && wanted !== baseline() ? wanted : groupsOf(judged()).find((group) => group !== baseline()) || null;
};

// On real clients communication is a part of the time, and there is no C to move.
const allReal = () => judged().length > 0 && judged().every((run) => run.real);

function remember() {
  const told = new URLSearchParams();
  if (view.board) told.set("data", String(view.board));
  if (view.chosen) {
    told.set("C", String(view.cost));
    if (view.target !== null && view.target !== board().target) told.set("target", String(view.target));
  }
  if (view.axis !== "time") told.set("axis", view.axis);
  if (view.kind !== "headline") told.set("kind", view.kind);
  if (view.seed !== null) told.set("seed", String(view.seed));
  if (view.baseline) told.set("baseline", view.baseline);
  if (view.against) told.set("against", view.against);
  for (const group of view.hidden) told.append("hide", group);
  const words = told.toString();
  if (words === location.hash.slice(1)) return;
  try {
    history.replaceState(null, "", words ? `#${words}` : location.pathname + location.search);
  } catch {
    // some browsers do not let a file change its address
  }
}

function recall() {
  const told = new URLSearchParams(location.hash.slice(1));
  const place = Number(told.get("data"));
  view.board = Number.isInteger(place) && place >= 0 && place < CONTENT.boards.length ? place : 0;
  view.chosen = told.has("C");
  view.cost = Math.max(0, Number(told.get("C")) || 0);
  const target = Number(told.get("target"));
  view.target = told.has("target") && Number.isFinite(target) ? target : board().target;
  view.axis = told.get("axis") === "round" ? "round" : "time";
  view.kind = told.get("kind") || "headline";
  view.seed = told.has("seed") ? Number(told.get("seed")) : null;
  view.baseline = told.get("baseline");
  view.against = told.get("against");
  view.hidden = new Set(told.getAll("hide"));
}
