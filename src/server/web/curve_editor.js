// The curve editor: points on a log-log plane, moved with the pointer or the keyboard.
// Each point is a slider for screen readers; arrows move it, Delete removes it.

import { addPoint, evaluateCurve, movePoint, prepareCurve, toLog, toPct } from './curve_math.js';
import { announce, h, svg } from './dom.js';
import { kNeutralCurve } from './settings.js';

const kRange = { minX: 0.01, maxX: 100, minY: 0.001, maxY: 100 };
const kBox = { left: 40, top: 10, width: 270, height: 210 };
const kKeyStep = 1.1;
const kBigStep = 2;
const kMaxPoints = 12;
const kHelp = 'Drag the points, or move one with the arrow keys. Delete removes it.';

const kPresets = [
  { name: 'Neutral', points: kNeutralCurve },
  { name: 'Focused', points: powerCurve(1.5) },
  { name: 'Adventurous', points: powerCurve(0.65) },
  { name: 'Clip the tail',
    points: [{ x_pct: 0.2, y_pct: 0.001 }, { x_pct: 2, y_pct: 1 }, { x_pct: 10, y_pct: 10 }, { x_pct: 100, y_pct: 100 }] },
];

/** What a temperature of 1/exponent does. */
function powerCurve(exponent) {
  return [0.1, 1, 10, 100].map((x) => ({ x_pct: x, y_pct: Number((100 * (x / 100) ** exponent).toPrecision(3)) }));
}

const kSpanX = toLog(kRange.maxX) - toLog(kRange.minX);
const kSpanY = toLog(kRange.maxY) - toLog(kRange.minY);
const screenX = (pct) => kBox.left + (kBox.width * (toLog(pct) - toLog(kRange.minX))) / kSpanX;
const screenY = (pct) => kBox.top + (kBox.height * (toLog(kRange.maxY) - toLog(pct))) / kSpanY;
const percent = (value) => `${Number(value.toPrecision(3))} %`;

export class CurveEditor {
  /** @param onChange called with the new points */
  constructor(points, onChange) {
    this.points = points;
    this.onChange = onChange;
    this.path = svg('path', { class: 'curve-line' });
    this.handles = svg('g', {});
    this.readout = h('p', { class: 'quiet curve-readout', 'aria-hidden': 'true', text: kHelp });
    this.plane = svg('svg', { viewBox: '0 0 320 264', class: 'curve', role: 'group', 'aria-label': 'Sampling curve' },
                     ...grid(), this.path, this.handles);
    this.plane.addEventListener('pointermove', (event) => this.onDrag(event));
    for (const type of ['pointerup', 'pointercancel']) this.plane.addEventListener(type, () => { this.dragged = null; });
    const preset = ({ name, points: chosen }) => h('button', { type: 'button', class: 'chip', text: name,
      on: { click: () => this.change(structuredClone(chosen), 0, name) } });
    this.adder = h('button', { type: 'button', class: 'chip', text: 'Add point', on: { click: () => this.add() } });
    this.root = h('div', { class: 'curve-editor' }, this.plane, this.readout,
                  h('div', { class: 'chips', role: 'group', 'aria-label': 'Curve presets' }, kPresets.map(preset), this.adder));
    this.draw();
  }

  change(points, selected, name = '') {
    this.points = points;
    this.onChange(points);
    this.draw();
    this.show(selected);
    if (name) announce(`Curve: ${name}`);
  }

  draw() {
    const curve = prepareCurve(this.points);
    if (curve) this.path.setAttribute('d', linePath(curve));
    this.adder.disabled = this.points.length >= kMaxPoints;
    while (this.handles.childElementCount > this.points.length) this.handles.lastChild.remove();
    this.points.forEach((point, i) => this.drawHandle(point, i));
  }

  /** Handles are kept while a point moves, so that focus and pointer capture stay. */
  drawHandle(point, i) {
    const handle = this.handles.children[i] || this.handles.appendChild(this.makeHandle(i));
    handle.setAttribute('transform', `translate(${screenX(point.x_pct).toFixed(1)} ${screenY(point.y_pct).toFixed(1)})`);
    handle.setAttribute('aria-label', `Point ${i + 1} of ${this.points.length}`);
    handle.setAttribute('aria-valuemin', String(kRange.minY));
    handle.setAttribute('aria-valuemax', String(kRange.maxY));
    handle.setAttribute('aria-valuenow', String(point.y_pct));
    handle.setAttribute('aria-valuetext', `${percent(point.x_pct)} becomes ${percent(point.y_pct)}`);
  }

  makeHandle(i) {
    const handle = svg('g', { class: 'handle', tabindex: '0', role: 'slider' },
                       svg('circle', { r: 14, class: 'handle-reach' }), svg('circle', { r: 6, class: 'handle-dot' }));
    handle.addEventListener('keydown', (event) => this.onKey(event, i));
    handle.addEventListener('focus', () => this.show(i));
    handle.addEventListener('pointerdown', (event) => {
      event.preventDefault();
      this.dragged = i;
      this.plane.setPointerCapture(event.pointerId);
      handle.focus();
    });
    return handle;
  }

  show(i) {
    const point = this.points[Math.min(i, this.points.length - 1)];
    const change = `${percent(point.x_pct)} becomes ${percent(point.y_pct)}`;
    this.readout.textContent = `A probability of ${change}, before all are scaled to 100 %.`;
  }

  onDrag(event) {
    if (this.dragged === null || this.dragged === undefined) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.plane.getScreenCTM().inverse());
    const x = toPct(toLog(kRange.minX) + ((at.x - kBox.left) / kBox.width) * kSpanX);
    const y = toPct(toLog(kRange.maxY) - ((at.y - kBox.top) / kBox.height) * kSpanY);
    this.change(movePoint(this.points, this.dragged, x, y, kRange), this.dragged);
  }

  onKey(event, i) {
    const step = event.shiftKey ? kBigStep : kKeyStep;
    const moves = { ArrowUp: [1, step], ArrowDown: [1, 1 / step], ArrowRight: [step, 1], ArrowLeft: [1 / step, 1] };
    const { x_pct: x, y_pct: y } = this.points[i];
    if (moves[event.key]) {
      const [dx, dy] = moves[event.key];
      this.change(movePoint(this.points, i, x * dx, y * dy, kRange), i);
    } else if (event.key === 'Home' || event.key === 'End') {
      this.change(movePoint(this.points, i, x, event.key === 'End' ? kRange.maxY : kRange.minY, kRange), i);
    } else if (event.key === 'Delete' || event.key === 'Backspace') {
      this.removeAt(i);
    } else {
      return;
    }
    event.preventDefault();
  }

  add() {
    this.change(addPoint(this.points), 0);
    announce(`The curve has ${this.points.length} points.`);
  }

  removeAt(i) {
    if (this.points.length <= 2) {
      announce('A curve needs two points.');
      return;
    }
    this.change(this.points.filter((_, k) => k !== i), Math.max(0, i - 1));
    this.handles.children[Math.min(i, this.points.length - 1)].focus();
    announce(`Point removed, ${this.points.length} left.`);
  }
}

function grid() {
  const out = [];
  for (const pct of [0.01, 0.1, 1, 10, 100]) {
    const x = screenX(pct);
    out.push(svg('line', { class: 'grid', x1: x, x2: x, y1: kBox.top, y2: kBox.top + kBox.height }),
             svg('text', { class: 'tick', x, y: kBox.top + kBox.height + 16, 'text-anchor': 'middle' }, String(pct)));
  }
  for (const pct of [0.001, 0.01, 0.1, 1, 10, 100]) {
    const y = screenY(pct);
    out.push(svg('line', { class: 'grid', x1: kBox.left, x2: kBox.left + kBox.width, y1: y, y2: y }),
             svg('text', { class: 'tick', x: kBox.left - 6, y: y + 3, 'text-anchor': 'end' }, String(pct)));
  }
  const [low, high, middle] = [kRange.minX, kRange.maxX, kBox.left + kBox.width / 2];
  out.push(svg('line', { class: 'identity', x1: screenX(low), y1: screenY(low), x2: screenX(high), y2: screenY(high) }),
           svg('text', { class: 'tick', x: middle, y: kBox.top + kBox.height + 36, 'text-anchor': 'middle' },
               'model’s probability, % → used, %'));
  return out;
}

function linePath(curve) {
  const steps = 80;
  const parts = [];
  for (let i = 0; i <= steps; i++) {
    const at = toLog(kRange.minX) + (i / steps) * kSpanX;
    const y = Math.min(kBox.top + kBox.height, Math.max(kBox.top, screenY(toPct(evaluateCurve(curve, at)))));
    parts.push(`${parts.length ? 'L' : 'M'}${screenX(toPct(at)).toFixed(1)} ${y.toFixed(1)}`);
  }
  return parts.join('');
}
