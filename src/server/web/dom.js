// Small helpers over the DOM. Text always enters as text nodes, never as HTML.

const kIcons = new URL('icons.svg', import.meta.url).href;

/**
 * Makes an element. Props: `class`, `on: {event: fn}`, `data: {}`, booleans, `text`, else attributes.
 * Kids: nodes, strings; null and false are left out.
 */
export function h(tag, props = {}, ...kids) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === 'data') Object.assign(node.dataset, value);
    else if (name === 'text') node.textContent = value;
    else if (name === 'value' || name === 'checked') node[name] = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const kid of kids.flat()) if (kid !== null && kid !== undefined && kid !== false) node.append(kid);
  return node;
}

/** An SVG element with attributes. */
export function svg(tag, attributes = {}, ...kids) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...kids);
  return node;
}

/** A drawing of icons.svg; hidden from screen readers, so its button needs a label. */
export function icon(name) {
  return svg('svg', { class: 'icon', 'aria-hidden': 'true' }, svg('use', { href: `${kIcons}#${name}` }));
}

/** A button with an icon and a label that only screen readers and the tooltip show. */
export function iconButton(name, label, click, props = {}) {
  return h('button', { type: 'button', class: 'icon-button', 'aria-label': label, title: label, on: { click }, ...props },
           icon(name));
}

export const byId = (id) => document.getElementById(id);

/** Copies text; the fallback serves pages that are not a secure context. */
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = h('textarea', { class: 'visually-hidden', value: text, 'aria-hidden': 'true' });
  const before = document.activeElement;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
  if (before) before.focus();
}

let announcer = null;

/** Says something to screen readers (politely), without moving the focus. */
export function announce(text) {
  announcer ||= byId('announcer');
  const line = h('p', { text });
  announcer.append(line);
  while (announcer.childElementCount > 12) announcer.firstElementChild.remove();
}

/** A bar of how full something is. The browser's <meter> cannot be styled alike everywhere. */
export function meter(props = {}) {
  return h('div', { role: 'meter', class: 'meter', 'aria-valuemin': '0', 'aria-valuemax': '100', ...props }, h('span'));
}

/** @param fraction in [0, 1]; what is beyond is cut */
export function setMeter(node, fraction, text) {
  const percent = Math.round(100 * Math.min(1, Math.max(0, fraction || 0)));
  node.setAttribute('aria-valuenow', String(percent));
  node.setAttribute('aria-valuetext', text);
  node.firstChild.style.width = `${percent}%`;
}

export function formatBytes(n) {
  if (!(n >= 0)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export const formatCount = (n) => Math.round(n).toLocaleString('en-US');

export function formatDuration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
}
