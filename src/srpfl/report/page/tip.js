// The words beside the mouse.

const tip = {
  show(event, ...content) {
    const node = byId("tip");
    node.replaceChildren(...content);
    node.hidden = false;
    const box = node.getBoundingClientRect();
    const right = event.clientX + 16 + box.width > innerWidth;
    node.style.left = `${Math.max(4, right ? event.clientX - 16 - box.width : event.clientX + 16)}px`;
    node.style.top = `${Math.max(4, Math.min(innerHeight - box.height - 4, event.clientY + 12))}px`;
  },
  hide() {
    byId("tip").hidden = true;
  },
};
// What the words were about moves away, or is drawn again under the mouse.
addEventListener("scroll", tip.hide, { passive: true });
addEventListener("change", tip.hide);
addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hide(); });

function tipRows(title, rows) {
  const table = html("table");
  for (const [run, ...cells] of rows) {
    const first = html("td");
    if (run && run.slot !== undefined) first.append(swatch(run), run.group);
    else first.append(run);
    table.append(html("tr", {}, first, ...cells.map((cell) => html("td", {}, cell))));
  }
  return [html("b", {}, title), table];
}

// A line as the charts draw it: the colour, and dashes where it waits for everyone.
function swatch(run) {
  const line = svg("line", { x1: 0, x2: 22, y1: 5, y2: 5, "stroke-width": 3, stroke: colour(run), "stroke-dasharray": run.waits ? "5 3" : "" });
  return svg("svg", { class: "swatch", viewBox: "0 0 22 10", "aria-hidden": "true" }, line);
}

function heading(run, words = "") {
  return html("h3", {}, html("span", {}, swatch(run), run.label), html("small", {}, words));
}
