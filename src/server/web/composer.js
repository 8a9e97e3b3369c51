// The message box: grows with its text, Enter sends, Shift+Enter breaks the line, Escape stops.
// Its one button sends while idle and stops while an answer runs.

import { icon } from './dom.js';
import { readSlot, writeSlot } from './slots.js';

const kDraftSlot = 'kvasir.draft';
const kMaxHeight = 240;  // px

export class Composer {
  constructor(chat, { form, area, button }) {
    this.chat = chat;
    this.area = area;
    this.button = button;
    area.value = readSlot('session', kDraftSlot) || '';
    area.addEventListener('input', () => this.onInput());
    area.addEventListener('keydown', (event) => this.onKey(event));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.act();
    });
    for (const type of ['conversation', 'idle']) chat.addEventListener(type, () => this.draw());
    this.onInput();
  }

  set(text) {
    if (this.chat.closed) return;
    this.area.value = text;
    this.onInput();
    this.area.focus();
  }

  onInput() {
    writeSlot('session', kDraftSlot, this.area.value);
    this.area.style.height = 'auto';
    this.area.style.height = `${Math.min(kMaxHeight, this.area.scrollHeight)}px`;
    this.draw();
  }

  onKey(event) {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!this.chat.run) this.act();
    }
  }

  act() {
    if (this.chat.run) {
      this.chat.stop();
      this.area.focus();
      return;
    }
    const text = this.area.value;
    if (!text.trim()) return;
    this.area.value = '';
    this.onInput();
    this.chat.send(text);
  }

  draw() {
    this.area.disabled = Boolean(this.chat.closed);
    if (this.chat.closed) this.area.placeholder = 'No chat with this model';
    const running = Boolean(this.chat.run);
    const label = running ? 'Stop the answer' : 'Send message';
    if (this.button.getAttribute('aria-label') !== label) {
      this.button.setAttribute('aria-label', label);
      this.button.title = label;
      this.button.classList.toggle('stop', running);
      this.button.replaceChildren(icon(running ? 'stop' : 'send'));
    }
    this.button.disabled = !running && (Boolean(this.chat.closed) || !this.area.value.trim());
  }
}
