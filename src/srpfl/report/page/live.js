// While a run goes on: ask the server that this page came from for what is new.

function badge(words, kind) {
  const node = byId("live");
  node.hidden = false;
  node.textContent = words;
  node.className = kind;
}

function follow() {
  let version = CONTENT.live;
  const say = () => {
    const over = CONTENT.runs.length > 0 && CONTENT.runs.every((run) => run.over);
    badge(over ? "finished" : CONTENT.runs.length ? "running" : "waiting for a run", over ? "" : "running");
  };
  const ask = async () => {
    try {
      const answer = await fetch(`content.json?version=${version}`);
      if (!answer.ok && answer.status !== 204) throw new Error(answer.statusText);
      if (answer.status === 200) {
        CONTENT = await answer.json();
        version = CONTENT.live;
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
