// Nodes, numbers, colours and frames: what all charts have in common.


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

function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  const places = Math.max(0, Math.min(6, digits - 1 - size));
  return value.toFixed(places).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

// A mean and its deviation with as many decimals as the deviation is worth.
function withSpread(value, spread, digits) {
  if (!spread) return number(value, digits);
  const places = Math.max(0, Math.min(4, 1 - Math.floor(Math.log10(spread)), digits - 1 - Math.floor(Math.log10(Math.abs(value) || 1))));
  return `${value.toFixed(places)} ± ${spread.toFixed(places)}`;
}

// A value of the metric in words, as the library's tables have it; a line never breaks before %.
function shown(value, spread = 0) {
  if (value === null || value === undefined) return "–";
  if (metric().share) return `${(100 * value).toFixed(1)}${spread ? ` ± ${(100 * spread).toFixed(1)}` : ""}\u00a0%`;
  return withSpread(value, spread, 4);
}

const drawn = (value) => (metric().share ? 100 * value : value); // on an axis
const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

const turn = (list, place) => list[place % list.length];
// Math.max(...values) breaks on very long lists.
const largest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);
const smallest = (values) => values.reduce((least, value) => Math.min(least, value), Infinity);

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Dark where the reader's system is, but never on paper.
const darkGround = matchMedia("(prefers-color-scheme: dark)");
let printing = false;
const isDark = () => darkGround.matches && !printing;
const colour = (run) => turn(CONTENT.palette[isDark() ? "dark" : "light"], run.slot);
const dash = (run) => (run.waits ? CONTENT.palette.dash : "");

// A colour for the place-th of some values that grow, as C does.
function stepColour(place, count) {
  const steps = CONTENT.palette[isDark() ? "darkSteps" : "lightSteps"];
  return steps[count > 1 ? Math.round((place * (steps.length - 1)) / (count - 1)) : 1];
}

function timeName(runs, short = false) {
  const real = runs.length > 0 && runs.every((run) => run.real);
  const units = [...new Set(runs.map((run) => run.unit))];
  const noun = real || short ? "time" : "simulated time";
  return `${noun} (${units.length === 1 ? units[0] : "clock units"})`;
}

// A chart's frame in SVG: grid, ticks, labels. Returns the scales and the node to draw into.
function frame(parent, { width, height, x, y, xLabel, yLabel, yFormat = number, xTicks = null, xFormat = number, log = false, backwards = false, room = 14, label }) {
  const margin = { left: 52, right: room, top: 10, bottom: 40 };
  const ys = (log ? logScale : scale)(y[0], y[1], height - margin.bottom, margin.top);
  margin.left = Math.max(margin.left, 30 + 7.5 * Math.max(0, ...ys.ticks(5).map((tick) => yFormat(tick).length)));
  const [from, to] = backwards ? [width - margin.right, margin.left] : [margin.left, width - margin.right];
  const xs = scale(x[0], x[1], from, to);
  const root = svg("svg", {
    class: "plot", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label,
  });
  for (const tick of ys.ticks(5)) {
    root.append(svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: ys(tick), y2: ys(tick) }));
    root.append(svg("text", { x: margin.left - 8, y: ys(tick) + 4, "text-anchor": "end" }, yFormat(tick)));
  }
  for (const tick of xTicks || xs.ticks(Math.max(3, Math.round(width / 110)))) {
    root.append(svg("line", { class: "axis", x1: xs(tick), x2: xs(tick), y1: height - margin.bottom, y2: height - margin.bottom + 4 }));
    root.append(svg("text", { x: xs(tick), y: height - margin.bottom + 18, "text-anchor": "middle" }, xFormat(tick)));
  }
  root.append(svg("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: height - margin.bottom, y2: height - margin.bottom }));
  root.append(svg("text", { x: (margin.left + width - margin.right) / 2, y: height - 4, "text-anchor": "middle" }, xLabel));
  root.append(svg("text", { transform: `translate(13 ${(height - margin.bottom + margin.top) / 2}) rotate(-90)`, "text-anchor": "middle" }, yLabel));
  parent.replaceChildren(root);
  return { root, xs, ys, margin };
}

const pathOf = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// A value holds until the next one, as in the library's own pictures.
const stairs = (points) => points.flatMap((point, i) => (i ? [[point[0], points[i - 1][1]], point] : [point]));

// A band between two lines of the same length.
function bandOf(low, high) {
  return low.length > 1 ? `${pathOf(low)}L${pathOf([...high].reverse()).slice(1)}Z` : "";
}

// Words beside the ends of lines, moved apart where they would lie on each other.
function labelEnds(root, ends, bottom) {
  const apart = 14;
  const placed = ends.map((end) => ({ ...end })).sort((a, b) => a.y - b.y);
  const wide = (end) => 18 + 6.6 * end.words.length;
  const meet = (a, b) => a.x < b.x + wide(b) && b.x < a.x + wide(a);
  placed.forEach((end, i) => {
    end.y = Math.max(end.y, 10, ...placed.slice(0, i).filter((each) => meet(each, end)).map((above) => above.y + apart));
  });
  placed.reverse().forEach((end, i) => {
    end.y = Math.min(end.y, bottom, ...placed.slice(0, i).filter((each) => meet(each, end)).map((below) => below.y - apart));
  });
  for (const { x, y, words, ink } of placed) {
    root.append(svg("line", { x1: x + 4, x2: x + 10, y1: y, y2: y, "stroke-width": 4, stroke: ink }));
    root.append(svg("text", { class: "end", x: x + 13, y: y + 4 }, words));
  }
}

// Room for such words to the right; none where the page is narrow: there the legend must do.
function roomFor(words, width) {
  return width < 640 ? 14 : Math.min(0.3 * width, 22 + 6.6 * Math.max(0, ...words.map((each) => each.length)));
}

// The width of a chart: its place's, and on paper what a page has, so that words keep their size and
// shape. Where panels are many, two share the page.
const PAPER = 700;
const paperOf = (parent) => (parent.closest(".panels.many") ? PAPER / 2 - 15 : PAPER);
const widthOf = (parent) => (printing ? paperOf(parent) : Math.max(260, parent.clientWidth));

// A sharp canvas of the parent's width.
function canvas(parent, height, label) {
  const width = widthOf(parent);
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
