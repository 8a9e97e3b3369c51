// The sampler panel: a row for each field, stop texts, the curve. An empty field is not sent; its
// placeholder tells the server's default where the server tells it.

import { CurveEditor } from './curve_editor.js';
import { h } from './dom.js';
import { checkField, kFields, kNeutralCurve, kReplacedByCurve, saveSettings } from './settings.js';

export class SamplerPanel {
  constructor(settings, root) {
    this.settings = settings;
    this.root = root;
    this.defaults = {};
    this.draw();
  }

  /** @param props the server's /props */
  setDefaults(props) {
    const given = props.default_generation_settings || {};
    this.defaults = { ...given, ...given.params };
    this.draw();
  }

  changed() {
    saveSettings(this.settings);
    this.reset.disabled = !this.isChanged();
  }

  isChanged() {
    return Object.keys(this.settings.values).length > 0 || this.settings.stop !== '' || this.settings.curveOn;
  }

  draw() {
    this.rows = new Map(kFields.map((field) => [field.key, this.row(field)]));
    this.reset = h('button', { type: 'button', class: 'button plain', on: { click: () => this.clear() } },
                   'Use the server’s defaults');
    this.root.replaceChildren(this.curveSection(), ...this.rows.values(), this.stopRow(), this.reset);
    this.dim();
    this.reset.disabled = !this.isChanged();
  }

  clear() {
    Object.assign(this.settings, { values: {}, stop: '', curveOn: false, curve: structuredClone(kNeutralCurve) });
    saveSettings(this.settings);
    this.draw();
  }

  row(field) {
    const { values } = this.settings;
    const id = `field-${field.key}`;
    const known = this.defaults[field.key];
    const fallback = typeof known === 'number' ? known : null;
    const error = h('p', { class: 'field-error', id: `${id}-error`, role: 'alert' });
    const number = h('input', { id, type: 'text', inputmode: field.integer ? 'numeric' : 'decimal', autocomplete: 'off',
                                value: values[field.key] ?? '', placeholder: fallback === null ? 'default' : tidy(fallback),
                                'aria-describedby': `${id}-hint ${id}-error` });
    const shown = () => values[field.key] ?? fallback ?? field.min;
    const range = field.slider ? h('input', { type: 'range', min: field.min, max: field.max, step: field.step, value: shown(),
                                              'aria-label': `${field.label}, slider` }) : null;
    const set = (text) => {
      const wrong = checkField(field, text);
      error.textContent = wrong;
      number.setAttribute('aria-invalid', String(wrong !== ''));
      if (wrong) return;
      if (text.trim() === '') delete values[field.key];
      else values[field.key] = Number(text);
      this.changed();
    };
    number.addEventListener('input', () => {
      set(number.value);
      if (range && !error.textContent) range.value = shown();
    });
    if (range) range.addEventListener('input', () => {
      number.value = range.value;
      set(range.value);
    });
    return h('div', { class: 'sampler-row' }, h('label', { for: id, text: field.label }), range, number,
             h('p', { class: 'hint', id: `${id}-hint`, text: field.hint }), error);
  }

  stopRow() {
    const area = h('textarea', { id: 'field-stop', rows: '2', value: this.settings.stop, 'aria-describedby': 'field-stop-hint' });
    area.addEventListener('input', () => {
      this.settings.stop = area.value;
      this.changed();
    });
    return h('div', { class: 'field' }, h('label', { for: area.id, text: 'Stop texts' }), area,
             h('p', { class: 'hint', id: 'field-stop-hint', text: 'One a line; \\n is a line break' }));
  }

  curveSection() {
    const box = h('input', { type: 'checkbox', id: 'curve-on', role: 'switch', checked: this.settings.curveOn });
    const editor = new CurveEditor(this.settings.curve, (points) => {
      this.settings.curve = points;
      this.changed();
    });
    const body = h('div', { hidden: !this.settings.curveOn }, editor.root);
    box.addEventListener('change', () => {
      this.settings.curveOn = box.checked;
      body.hidden = !box.checked;
      this.dim();
      this.changed();
    });
    return h('div', { class: 'curve-section' },
             h('div', { class: 'switch-row' }, h('label', { for: box.id, text: 'Shape probabilities with a curve' }), box),
             h('p', { class: 'hint', text: 'Instead of temperature, top-p, top-k, min-p and XTC.' }), body);
  }

  /** Fields that have no effect beside the curve look so. */
  dim() {
    for (const key of kReplacedByCurve) this.rows.get(key).classList.toggle('replaced', this.settings.curveOn);
  }
}

const tidy = (value) => String(Number(value.toPrecision(4)));
