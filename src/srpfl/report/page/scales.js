// From values to pixels and back, with ticks at round numbers.

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
    const tries = [logTicks(low, high, [1]), logTicks(low, high, [1, 2, 5]), niceTicks(low, high, 5)];
    return tries.find((ticks) => ticks.length > 2) || tries.at(-1);
  };
  return at;
}

function logTicks(low, high, factors) {
  const found = [];
  for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e++) found.push(...factors.map((factor) => factor * 10 ** e));
  return found.filter((tick) => tick >= low && tick <= high);
}

function niceStep(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
}

function niceTicks(low, high, count) {
  const step = niceStep(low, high, count);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}

// Ends of an axis that hold all values, at ticks; shares, in per cent, by tens.
function ends(values, share) {
  if (!values.length) return [0, share ? 100 : 1];
  const [least, most] = [smallest(values), largest(values)];
  if (share) return [Math.max(0, Math.floor(least / 10) * 10), Math.min(100, Math.ceil((most + 0.5) / 10) * 10)];
  const step = niceStep(least, most > least ? most : least + Math.abs(least), 5);
  const low = Math.floor(least / step + 1e-9);
  return [low * step, Math.max(low + 1, Math.ceil(most / step - 1e-9)) * step];
}
