// The sampling curve (a map between probabilities, both in percent), as the server computes it:
// monotone cubic interpolation in log-log space (Fritsch and Carlson), linear beyond the ends.

const kFloor = 1e-9;

export const toLog = (pct) => Math.log(Math.max(pct, kFloor) / 100);
export const toPct = (log) => Math.exp(log) * 100;

/** @returns {x, y, m}: sorted logs and tangents, or null when the points are not monotone */
export function prepareCurve(points) {
  const sorted = points.map((p) => ({ x: toLog(p.x_pct), y: toLog(p.y_pct) })).sort((a, b) => a.x - b.x);
  const x = sorted.map((p) => p.x);
  const y = sorted.map((p) => p.y);
  if (x.length < 2) return null;
  const secants = [];
  for (let i = 0; i + 1 < x.length; i++) {
    if (x[i + 1] === x[i]) return null;
    secants.push((y[i + 1] - y[i]) / (x[i + 1] - x[i]));
  }
  return secants.every((s) => s >= -1e-12) ? { x, y, m: tangents(x, secants) } : null;
}

function tangents(x, secants) {
  const m = [secants[0]];
  for (let i = 1; i < secants.length; i++) {
    const [d1, d2] = [secants[i - 1], secants[i]];
    const [h1, h2] = [x[i] - x[i - 1], x[i + 1] - x[i]];
    const [w1, w2] = [2 * h2 + h1, h2 + 2 * h1];
    m.push(d1 * d2 <= 0 ? 0 : (w1 + w2) / (w1 / d1 + w2 / d2));
  }
  m.push(secants[secants.length - 1]);
  return m;
}

/** The curve's value at log probability `at`. */
export function evaluateCurve({ x, y, m }, at) {
  const last = x.length - 1;
  if (at <= x[0]) return y[0] + Math.max(m[0], 1) * (at - x[0]);
  if (at >= x[last]) return y[last] + m[last] * (at - x[last]);
  let i = 0;
  while (at > x[i + 1]) i++;
  const h = x[i + 1] - x[i];
  const t = (at - x[i]) / h;
  const [t2, t3] = [t * t, t * t * t];
  const ends = (2 * t3 - 3 * t2 + 1) * y[i] + (3 * t2 - 2 * t3) * y[i + 1];
  return ends + (t3 - 2 * t2 + t) * h * m[i] + (t3 - t2) * h * m[i + 1];
}

/** Moves point `i`, held between its neighbours so that the curve stays monotone. */
export function movePoint(points, i, x, y, range) {
  const gap = 1.02;  // neighbours stay 2 % apart
  const before = points[i - 1];
  const after = points[i + 1];
  const lowX = Math.max(range.minX, before ? before.x_pct * gap : 0);
  const highX = Math.min(range.maxX, after ? after.x_pct / gap : Infinity);
  const moved = points.slice();
  moved[i] = {
    x_pct: lowX > highX ? points[i].x_pct : within(x, lowX, highX),
    y_pct: within(y, before ? before.y_pct : range.minY, after ? after.y_pct : range.maxY),
  };
  return moved;
}

/** Three digits are enough to read; the bounds hold exactly. */
function within(value, low, high) {
  return Math.min(high, Math.max(low, Number(value.toPrecision(3))));
}

/** Adds a point in the middle of the widest gap, on the curve. */
export function addPoint(points) {
  const curve = prepareCurve(points);
  let widest = 0;
  for (let i = 1; i + 1 < points.length; i++) {
    if (curve.x[i + 1] - curve.x[i] > curve.x[widest + 1] - curve.x[widest]) widest = i;
  }
  const middle = (curve.x[widest] + curve.x[widest + 1]) / 2;
  const [x, y] = [middle, evaluateCurve(curve, middle)].map((log) => Number(toPct(log).toPrecision(3)));
  return [...points.slice(0, widest + 1), { x_pct: x, y_pct: y }, ...points.slice(widest + 1)];
}
