// Scales, axes, numbers and the tooltip: what all charts have in common.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function html(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") node.addEventListener("click", value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

const byId = (id) => document.getElementById(id);

function scale(low, high, from, to) {
  const span = high - low || 1;
  const at = (value) => from + ((value - low) / span) * (to - from);
  at.inverse = (pixel) => low + ((pixel - from) / (to - from)) * span;
  at.ticks = (count) => niceTicks(low, high, count);
  return at;
}

function logScale(low, high, from, to) {
  const inner = scale(Math.log10(low), Math.log10(high), from, to);
  const at = (value) => inner(Math.log10(Math.max(value, low)));
  at.inverse = (pixel) => 10 ** inner.inverse(pixel);
  at.ticks = () => {
    const found = [];
    for (let e = Math.ceil(Math.log10(low)); 10 ** e <= high; e++) found.push(10 ** e);
    return found;
  };
  return at;
}

function niceTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}

function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  const places = Math.max(0, Math.min(6, digits - 1 - size));
  return value.toFixed(places).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1) + " %");

const turn = (list, place) => list[place % list.length];
// Math.max(...values) breaks on very long lists.
const largest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const darkGround = matchMedia("(prefers-color-scheme: dark)");
const colour = (run) => turn(CONTENT.palette[darkGround.matches ? "dark" : "light"], run.slot);
const dash = (run) => turn(CONTENT.palette.dashes, Math.floor(run.slot / CONTENT.palette.light.length));

function timeName(runs, short = false) {
  const real = runs.length > 0 && runs.every((run) => run.real);
  const seconds = runs.length > 0 && runs.every((run) => run.unit === "s");
  const noun = real ? "time" : short ? "time" : "simulated time";
  return `${noun} (${seconds ? "s" : "clock units"})`;
}

// A chart's frame in SVG: grid, ticks, labels. Returns the scales and the node to draw into.
function frame(parent, { width, height, x, y, xLabel, yLabel, yFormat = number, label }) {
  const margin = { left: 52, right: 14, top: 10, bottom: 40 };
  const xs = scale(x[0], x[1], margin.left, width - margin.right);
  const ys = scale(y[0], y[1], height - margin.bottom, margin.top);
  const root = svg("svg", {
    class: "plot", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label,
  });
  for (const tick of ys.ticks(5)) {
    root.append(svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: ys(tick), y2: ys(tick) }));
    root.append(svg("text", { x: margin.left - 8, y: ys(tick) + 4, "text-anchor": "end" }, yFormat(tick)));
  }
  for (const tick of xs.ticks(Math.max(3, Math.round(width / 110)))) {
    root.append(svg("line", { class: "axis", x1: xs(tick), x2: xs(tick), y1: height - margin.bottom, y2: height - margin.bottom + 4 }));
    root.append(svg("text", { x: xs(tick), y: height - margin.bottom + 18, "text-anchor": "middle" }, number(tick)));
  }
  root.append(svg("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: height - margin.bottom, y2: height - margin.bottom }));
  root.append(svg("text", { x: (margin.left + width - margin.right) / 2, y: height - 4, "text-anchor": "middle" }, xLabel));
  root.append(svg("text", { transform: `translate(13 ${(height - margin.bottom + margin.top) / 2}) rotate(-90)`, "text-anchor": "middle" }, yLabel));
  parent.replaceChildren(root);
  return { root, xs, ys, margin };
}

// A sharp canvas of the parent's width.
function canvas(parent, height, label) {
  const width = Math.max(260, parent.clientWidth);
  const ratio = devicePixelRatio || 1;
  const node = html("canvas", { role: "img", "aria-label": label, style: `height:${height}px` });
  node.width = width * ratio;
  node.height = height * ratio;
  const pen = node.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11.5px system-ui, sans-serif";
  parent.append(node);
  return { node, pen, width, height };
}

function textAt(pen, words, x, y, { align = "left", turn = 0, ink = css("--soft") } = {}) {
  pen.save();
  pen.translate(x, y);
  pen.rotate(turn);
  pen.textAlign = align;
  pen.fillStyle = ink;
  pen.fillText(words, 0, 0);
  pen.restore();
}

// Gridlines and labels of a vertical axis on a canvas.
function verticalAxis(pen, ys, { left, right, ticks, format = number, label }) {
  pen.lineWidth = 1;
  for (const tick of ticks) {
    const y = Math.round(ys(tick)) + 0.5;
    pen.strokeStyle = css("--line");
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(right, y);
    pen.stroke();
    textAt(pen, format(tick), left - 6, y + 4, { align: "right" });
  }
  const [top, bottom] = [ys(ticks[ticks.length - 1]), ys(ticks[0])];
  textAt(pen, label, 11, (top + bottom) / 2, { align: "center", turn: -Math.PI / 2 });
}

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

function tipRows(title, rows) {
  const table = html("table");
  for (const [run, ...cells] of rows) {
    const first = html("td");
    if (run && run.slot !== undefined) first.append(swatch(run), run.label);
    else first.append(run);
    table.append(html("tr", {}, first, ...cells.map((cell) => html("td", {}, cell))));
  }
  return [html("b", {}, title), table];
}

const swatch = (run) => html("span", { class: "swatch", style: `background:${colour(run)}` });

function heading(run, words = "") {
  return html("h3", {}, html("span", {}, swatch(run), run.label), html("small", {}, words));
}
