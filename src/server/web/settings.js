// The user's settings: sampler values, curve, tools. Kept in localStorage; a value that is not set
// is not sent, so that the server's own default holds.

import { readSlot, writeSlot } from './slots.js';

const kSlot = 'kvasir.settings';

/** Every field of the panel; `slider` fields show a range beside the number. */
export const kFields = [
  { key: 'temperature', label: 'Temperature', min: 0, max: 2, step: 0.05, slider: true, hint: '0 always takes the likeliest token' },
  { key: 'top_p', label: 'Top-p', min: 0, max: 1, step: 0.01, slider: true, hint: 'Keep the likeliest tokens that make up this share' },
  { key: 'top_k', label: 'Top-k', min: 0, step: 1, integer: true, hint: 'Keep this many tokens; 0 keeps all' },
  { key: 'min_p', label: 'Min-p', min: 0, max: 1, step: 0.01, slider: true, hint: 'Drop tokens below this fraction of the best' },
  { key: 'repetition_penalty', label: 'Repetition penalty', min: 0, step: 0.05, hint: '1 is off' },
  { key: 'presence_penalty', label: 'Presence penalty', step: 0.1, hint: 'Once for each token already used' },
  { key: 'frequency_penalty', label: 'Frequency penalty', step: 0.1, hint: 'For each time it was used' },
  { key: 'xtc_probability', label: 'XTC probability', min: 0, max: 1, step: 0.05, hint: 'Chance to leave out the obvious tokens' },
  { key: 'xtc_threshold', label: 'XTC threshold', min: 0, max: 0.5, step: 0.01, hint: 'Obvious means above this' },
  { key: 'max_tokens', label: 'Longest answer', min: 1, step: 1, integer: true, hint: 'Tokens' },
  { key: 'seed', label: 'Seed', step: 1, integer: true, hint: 'The same seed gives the same answer' },
];

/** Fields that a curve replaces. */
export const kReplacedByCurve = ['temperature', 'top_p', 'min_p', 'top_k', 'xtc_probability', 'xtc_threshold'];

export const kNeutralCurve = [0.1, 1, 10, 100].map((pct) => ({ x_pct: pct, y_pct: pct }));

const kDefaults = { values: {}, stop: '', curveOn: false, curve: kNeutralCurve, tools: '', system: '' };

export function loadSettings() {
  try {
    const kept = JSON.parse(readSlot('local', kSlot)) || {};
    return { ...structuredClone(kDefaults), ...kept };
  } catch {
    return structuredClone(kDefaults);
  }
}

export function saveSettings(settings) {
  writeSlot('local', kSlot, JSON.stringify(settings));
}

/** What is wrong with a typed value, in words; '' when nothing is. */
export function checkField(field, text) {
  if (text.trim() === '') return '';
  const value = Number(text);
  if (!Number.isFinite(value)) return `${field.label} must be a number.`;
  if (field.integer && !Number.isInteger(value)) return `${field.label} must be a whole number.`;
  if (field.min !== undefined && value < field.min) return `${field.label} must be at least ${field.min}.`;
  if (field.max !== undefined && value > field.max) return `${field.label} must be at most ${field.max}.`;
  return '';
}

/** Stop texts: one a line; \n and \t are written with a backslash. */
export function stopList(text) {
  const unescape = (line) => line.replace(/\\(n|t|\\)/g, (_, c) => ({ n: '\n', t: '\t', '\\': '\\' })[c]);
  return text.split('\n').filter((line) => line !== '').map(unescape);
}

/** Tool definitions as the API wants them; null when none. Throws with words when not usable. */
export function parseTools(text) {
  if (text.trim() === '') return null;
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error(`The tools are not valid JSON: ${error.message}`);
  }
  if (!Array.isArray(tools)) tools = [tools];
  return tools.map((tool) => {
    const wrapped = tool && tool.function ? tool : { type: 'function', function: tool };
    if (!wrapped.function || typeof wrapped.function.name !== 'string') throw new Error('Each tool needs a name.');
    return wrapped;
  });
}

/** The request fields that the settings add. */
export function requestFields(settings) {
  const fields = {};
  for (const { key } of kFields) {
    const value = settings.values[key];
    if (typeof value === 'number' && Number.isFinite(value)) fields[key] = value;
  }
  const stop = stopList(settings.stop);
  if (stop.length > 0) fields.stop = stop;
  if (settings.curveOn) fields.curve = { points: settings.curve };
  const tools = parseTools(settings.tools);
  if (tools) fields.tools = tools;
  return fields;
}
