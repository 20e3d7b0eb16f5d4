// How runs stand; and while they go on, asking the server that this page came from for what is new.

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

const progress = (run) => `${run.rounds.length}/${run.planned}`;

// What to say of runs that did not finish.
function drawStates() {
  const words = visible().flatMap((run) => {
    const { state, why } = run.status;
    if (state === "diverged") return [`${run.label} ended after ${run.rounds.length} of ${run.planned} rounds. ${capital(why)}`];
    if (state === "stopped?") return [`${run.label} seems to have stopped after ${run.rounds.length} of ${run.planned} rounds: no process is playing it.`];
    return state === "unfinished" ? [`${run.label} has ${run.rounds.length} of ${run.planned} rounds.`] : [];
  });
  byId("states").textContent = words.map((each) => (/[.!?]$/.test(each) ? each : `${each}.`)).join(" ");
  byId("states").hidden = !words.length;
}

function badge(words, kind) {
  const node = byId("live");
  node.hidden = false;
  if (node.textContent !== words) node.textContent = words;
  node.className = kind;
}

function follow() {
  let version = CONTENT.live;
  let came = performance.now();
  const say = () => {
    const states = CONTENT.runs.map((run) => run.status);
    const since = (performance.now() - came) / 1000;
    const ages = (wanted) => states.filter((each) => each.state === wanted && each.age !== null).map((each) => each.age + since);
    const last = (wanted) => (ages(wanted).length ? `last round ${ago(Math.min(...ages(wanted)))} ago` : "no round yet");
    const some = (wanted) => states.some((each) => each.state === wanted);
    if (!states.length) badge("waiting for a run", "running");
    else if (some("running")) badge(`running, ${last("running")}`, "running");
    else if (some("stopped?")) badge(`stopped? ${last("stopped?")}`, "lost");
    else if (some("diverged")) badge("diverged", "lost");
    else badge("finished", "");
  };
  const ask = async () => {
    try {
      const answer = await fetch(`content.json?version=${version}`);
      if (!answer.ok && answer.status !== 204) throw new Error(answer.statusText);
      if (answer.status === 200) {
        CONTENT = await answer.json();
        version = CONTENT.live;
        came = performance.now();
        draw();
      }
      say();
    } catch {
      badge("srpfl watch has stopped: this is the last that was seen", "lost");
    }
    setTimeout(ask, 1000);
  };
  say();
  setTimeout(ask, 1000);
}
