// Modal questions, on the browser's own <dialog>: focus stays inside, Escape answers no.

import { h } from './dom.js';

/** Shows a dialog with `fields` and resolves with `read()` when accepted, null otherwise. */
function modal(title, fields, accept, read, danger = false) {
  return new Promise((resolve) => {
    const form = h('form', { method: 'dialog' },
      h('h2', { id: 'dialog-title', text: title }), fields,
      h('div', { class: 'row' },
        h('button', { type: 'button', class: 'button plain', text: 'Cancel', on: { click: () => dialog.close('') } }),
        h('button', { type: 'submit', class: danger ? 'button danger' : 'button', value: 'yes', text: accept })));
    const dialog = h('dialog', { 'aria-labelledby': 'dialog-title' }, form);
    const before = document.activeElement;
    dialog.addEventListener('close', () => {
      const answer = dialog.returnValue === 'yes' ? read() : null;
      dialog.remove();
      if (before && before.isConnected) before.focus();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export async function ask(title, text, accept) {
  return Boolean(await modal(title, [h('p', { text })], accept, () => true, true));
}

export function askText(title, label, value) {
  const input = h('input', { id: 'dialog-input', type: 'text', value, maxlength: '200', autofocus: true, autocomplete: 'off' });
  return modal(title, [h('label', { for: input.id, text: label }), input], 'Save', () => input.value);
}

/** Asks for the server's API key; `refused` says that the last one was wrong. */
export function askKey(refused) {
  const input = h('input', { id: 'dialog-input', type: 'password', autofocus: true, autocomplete: 'off', required: true });
  const text = refused ? 'That key was not accepted.' : 'This server wants an API key. It is kept until you close this tab.';
  const fields = [h('p', { text }), h('label', { for: input.id, text: 'Key' }), input];
  return modal('API key', fields, 'Continue', () => input.value.trim());
}
