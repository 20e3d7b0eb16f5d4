// Simulated time, scrubbed or played: who is at work, who is waited for, what the shared model has
// heard, and the metric so far.

const MOMENTS = 1000;
const PLAYING = 20000; // milliseconds for the whole
let playing = null;

function replayRuns() {
  const runs = chosenRuns().filter((run) => run.rounds.length && run.clients.length);
  const first = (run) => (run.group === baseline() || run.group === against() ? 0 : 1);
  return runs.sort((a, b) => first(a) - first(b)).slice(0, 4);
}

const costHere = (run) => costOf(run) ?? run.communication;
const endOf = (run) => run.rounds.at(-1).computing + costHere(run) * run.rounds.length;

// The slider goes by the rounds of the method that does not wait: its first ones take a thousandth
// of the time, and are what there is to see. The last tenth is for those that take longer.
function momentAt(runs, part) {
  const run = runs.find((each) => each.group === against()) || runs[0];
  const cost = costHere(run);
  const start = (i) => (i > 0 ? run.rounds[i - 1].computing + cost * i : 0);
  const last = Math.max(...runs.map(endOf));
  if (part > 0.9) return endOf(run) + ((last - endOf(run)) * (part - 0.9)) / 0.1;
  const place = Math.min((part / 0.9) * run.rounds.length, run.rounds.length);
  const i = Math.min(Math.floor(place), run.rounds.length - 1);
  return start(i) + (place - i) * (start(i + 1) - start(i));
}

function drawReplay() {
  const runs = replayRuns();
  byId("replay").hidden = !runs.length || CONTENT.thinned > 1; // it needs every answer
  const parent = byId("replays");
  if (byId("replay").hidden) return parent.replaceChildren();
  const last = Math.max(...runs.map(endOf));
  const moment = momentAt(runs, Number(byId("moment").value) / MOMENTS);
  const words = `${number(moment)} of ${number(last)}${runs[0].unit === "s" ? " s" : ""}`;
  byId("moment-words").textContent = words;
  byId("moment").setAttribute("aria-valuetext", words);
  parent.replaceChildren();
  for (const run of runs) drawMoment(parent, run, moment);
}

// The round that is played at a moment, how far it has come, and what is known by then.
function stateAt(run, moment) {
  const cost = costHere(run);
  let place = run.rounds.findIndex((round, i) => round.computing + cost * (i + 1) > moment);
  const over = place < 0;
  if (over) place = run.rounds.length - 1;
  const before = place ? run.rounds[place - 1].computing + cost * place : 0;
  const round = run.rounds[place];
  const since = over ? Infinity : moment - before;
  const curve = points(run, cost).findLast((point) => point.time <= moment);
  const heard = new Set();
  run.rounds.slice(0, over ? place + 1 : place).forEach((each) => each.clients.slice(0, each.waited).forEach((client) => heard.add(client)));
  return { place, round, since, over, heard, latest: curve || null };
}

// Of those tested by then, how those stand whom the shared model has heard, and those not.
function heardAt(run, state) {
  const k = run.history.round.findLastIndex((round) => round <= (state.latest ? state.latest.round : 0));
  if (k < 0) return [null, null];
  const parts = [true, false].map((wanted) => run.clients.filter((client) => state.heard.has(client[CLIENT]) === wanted));
  return parts.map((part) => pooled(part.map((client) => [run.history.values[k][client[CLIENT]], client[WEIGHT]])));
}

// Who is at work in a round: when each will have answered, counted from the round's start, and
// whether that will count. Where late answers are kept, some were asked in earlier rounds.
function workAt(run, place) {
  const cost = costHere(run);
  const start = (i) => (i > 0 ? run.rounds[i - 1].computing + cost * i : 0);
  const jobs = new Map();
  const oldest = run.rounds.reduce((most, round) => Math.max(most, ...(round.ages || [0])), 0);
  run.rounds.slice(place, place + oldest + 1).forEach((round, ahead) => round.clients.forEach((client, k) => {
    const asked = place + ahead - ((round.ages || [])[k] || 0);
    if (asked > place || jobs.has(client)) return;
    jobs.set(client, { time: start(Math.max(0, asked)) + round.times[k] - start(place), counts: k < round.waited });
  }));
  return jobs;
}

function drawMoment(parent, run, moment) {
  const state = stateAt(run, moment);
  const { round, since } = state;
  const work = workAt(run, state.place);
  const answered = round.clients.filter((client, k) => k < round.waited && work.get(client).time <= since).length;
  const holder = html("div", {}, heading(run, state.over ? "over" : `round ${state.place + 1} of ${run.planned}`));
  parent.append(holder);
  const width = Math.max(260, holder.clientWidth);
  const across = Math.max(1, Math.min(run.clients.length, Math.floor(width / Math.max(7, Math.min(22, width / Math.sqrt(4 * run.clients.length))))));
  const size = Math.min(26, width / across);
  const down = Math.ceil(run.clients.length / across);
  const { pen } = canvas(holder, down * size + 4, `Clients at time ${number(moment, 4)}, ${run.label}`);
  run.clients.forEach((client, i) => {
    const [x, y, side] = [(i % across) * size + 1, Math.floor(i / across) * size + 1, size - 2];
    const job = state.over ? undefined : work.get(client[CLIENT]);
    pen.lineWidth = 1.5;
    pen.strokeStyle = css("--line");
    pen.fillStyle = css("--raised");
    if (job && job.time <= since) pen.strokeStyle = colour(run);
    else if (job) pen.fillStyle = job.counts ? colour(run) : css("--faint");
    pen.fillRect(x, y, side, side);
    pen.strokeRect(x + 0.75, y + 0.75, side - 1.5, side - 1.5);
    if (!state.heard.has(client[CLIENT])) return;
    pen.fillStyle = job && job.time > since ? css("--ground") : css("--ink");
    pen.beginPath();
    pen.arc(x + side / 2, y + side / 2, Math.max(1, side / 7), 0, 7);
    pen.fill();
  });
  const [with_, without] = heardAt(run, state);
  const words = [
    ...(state.over ? [] : [`waits for ${round.wait} of ${round.asked}, ${answered} ${answered === 1 ? "has" : "have"} answered`]),
    `${state.heard.size} of ${run.clients.length} clients heard`,
    state.latest ? `${metric().title} ${shown(state.latest.value)} (after round ${state.latest.round})` : `no ${metric().title} yet`,
    ...(with_ !== null && without !== null ? [`heard ${shown(with_)}, never heard ${shown(without)}`] : []),
  ];
  holder.append(html("p", { class: "note" }, words.join("; ")));
}

function stopReplay() {
  if (playing !== null) cancelAnimationFrame(playing);
  playing = null;
  byId("play").textContent = "Play";
}

function playReplay() {
  const slider = byId("moment");
  if (Number(slider.value) >= MOMENTS) slider.value = 0;
  const begun = performance.now() - (PLAYING * Number(slider.value)) / MOMENTS;
  byId("play").textContent = "Pause";
  const step = (now) => {
    slider.value = Math.min(MOMENTS, Math.round((MOMENTS * (now - begun)) / PLAYING));
    drawReplay();
    if (Number(slider.value) >= MOMENTS) return stopReplay();
    playing = requestAnimationFrame(step);
  };
  playing = requestAnimationFrame(step);
}

byId("play").addEventListener("click", () => (playing === null ? playReplay() : stopReplay()));
byId("moment").addEventListener("input", () => { stopReplay(); drawReplay(); });
