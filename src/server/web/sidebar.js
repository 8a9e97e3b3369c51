// The list of conversations, grouped by day, with rename, export and delete.

import { ask, askText } from './dialogs.js';
import { byId, h, icon, iconButton } from './dom.js';

const kDayMs = 86_400_000;

export class Sidebar {
  /** @param onOpened called when a conversation was chosen (narrow screens close the drawer) */
  constructor(chat, root, onOpened) {
    this.chat = chat;
    this.root = root;
    this.onOpened = onOpened;
    chat.addEventListener('list', () => this.draw());
    chat.addEventListener('conversation', () => this.mark());
    chat.addEventListener('idle', () => this.mark());
    this.draw();
  }

  async draw() {
    const heads = await this.chat.store.list();
    const shown = JSON.stringify(heads.map(({ id, title, updated }) => [id, title, dayName(updated)]));
    if (shown === this.shown) return;
    this.shown = shown;
    const focused = this.root.contains(document.activeElement) ? document.activeElement.dataset.id : this.focusNext;
    this.focusNext = null;
    const groups = [];
    for (const head of heads) {
      const name = dayName(head.updated);
      if (groups.length === 0 || groups[groups.length - 1].name !== name) groups.push({ name, items: [] });
      groups[groups.length - 1].items.push(this.item(head));
    }
    this.root.replaceChildren(...groups.map(({ name, items }, i) => h('section', { 'aria-labelledby': `day-${i}` },
      h('h3', { id: `day-${i}`, text: name }), h('ul', {}, items))));
    if (heads.length === 0) this.root.append(h('p', { class: 'quiet', text: 'Nothing here yet.' }));
    this.mark();
    if (focused) this.root.querySelector(`button.open[data-id="${CSS.escape(focused)}"]`)?.focus();
  }

  item(head) {
    const title = head.title || 'Untitled';
    const open = async () => {
      if (await this.chat.open(head.id)) this.onOpened();
    };
    return h('li', { data: { id: head.id } },
      h('button', { type: 'button', class: 'open', data: { id: head.id }, title, on: { click: open } },
        h('span', { class: 'title', text: title }), h('span', { class: 'running', 'aria-label': 'answering', hidden: true })),
      h('span', { class: 'item-tools' },
        iconButton('edit', `Rename ${title}`, () => this.rename(head)),
        iconButton('save', `Export ${title}`, () => this.exportOne(head)),
        iconButton('trash', `Delete ${title}`, () => this.remove(head))));
  }

  mark() {
    for (const li of this.root.querySelectorAll('li')) {
      const current = li.dataset.id === this.chat.conversation.id;
      li.classList.toggle('current', current);
      const button = li.querySelector('.open');
      if (current) button.setAttribute('aria-current', 'true');
      else button.removeAttribute('aria-current');
      li.querySelector('.running').hidden = !this.chat.runs.has(li.dataset.id);
    }
  }

  async rename(head) {
    const title = await askText('Rename the conversation', 'Name', head.title);
    this.focusNext = head.id;
    if (title && title.trim()) await this.chat.rename(head.id, title.trim());
  }

  async remove(head) {
    const yes = await ask('Delete this conversation?', `“${head.title || 'Untitled'}” will be gone for good.`, 'Delete');
    if (!yes) return;
    await this.chat.remove(head.id);
    byId('new-chat').focus();
  }

  async exportOne(head) {
    download(`kvasir-${fileName(head.title)}.json`, [await this.chat.store.get(head.id)]);
  }

  async exportAll() {
    const heads = await this.chat.store.list();
    download('kvasir-conversations.json', await Promise.all(heads.map((head) => this.chat.store.get(head.id))));
  }
}

function dayName(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return 'Today';
  if (time >= midnight - kDayMs) return 'Yesterday';
  if (time >= midnight - 7 * kDayMs) return 'This week';
  return 'Earlier';
}

function fileName(title) {
  const plain = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 40);
  return plain.replace(/^-|-$/g, '') || 'conversation';
}

function download(name, conversations) {
  const text = JSON.stringify({ format: 'kvasir-chat', version: 1, conversations }, null, 2);
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  h('a', { href: url, download: name }, icon('save')).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
