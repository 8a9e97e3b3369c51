// The messages of the conversation in use. Rebuilt when messages change; a running answer is
// updated in place. Follows the end while the reader is there.

import { AnswerView } from './answer_view.js';
import { announce, copyText, h, icon, iconButton } from './dom.js';

const kNearEnd = 90;  // px

const kIdeas = [
  'Explain how a transformer’s key-value cache works, with a small example.',
  'Write a function that merges overlapping intervals, with tests.',
  'Compare three ways to store time series in a table.',
];

export class LogView {
  constructor(chat, { scroller, list, toEnd, compose }) {
    this.chat = chat;
    this.scroller = scroller;
    this.list = list;
    this.toEnd = toEnd;
    this.compose = compose;
    this.following = true;
    this.lastTop = 0;
    this.live = null;
    scroller.addEventListener('scroll', () => this.noteScroll(), { passive: true });
    // Text that grows, a drawer that opens, a window that turns: who reads the end stays there.
    const follow = new ResizeObserver(() => { if (this.following) this.scrollToEnd(); });
    follow.observe(list);
    follow.observe(scroller);
    toEnd.addEventListener('click', () => this.scrollToEnd());
    chat.addEventListener('conversation', () => this.rebuild());
    chat.addEventListener('answer', ({ detail }) => { if (this.live && this.live.run === detail) this.live.update(); });
    chat.addEventListener('idle', ({ detail }) => this.onIdle(detail));
    this.rebuild();
  }

  /** Only moving up leaves the end: text that grows below does not. */
  noteScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const near = scrollHeight - scrollTop - clientHeight < kNearEnd;
    if (near) this.following = true;
    else if (scrollTop < this.lastTop) this.following = false;
    this.lastTop = scrollTop;
    this.toEnd.hidden = near;
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.noteScroll();
  }

  rebuild() {
    const { conversation, run } = this.chat;
    const { messages, trim } = conversation;
    const same = this.shownId === conversation.id;
    this.shownId = conversation.id;
    this.live = null;
    const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
    const label = focused && focused.getAttribute('aria-label');
    const nodes = [];
    messages.forEach((message, index) => {
      if (trim > 0 && index === trim) nodes.push(this.trimLine());
      nodes.push(this.messageNode(message, index, run));
    });
    this.list.replaceChildren(...(nodes.length > 0 ? nodes : [this.welcome()]));
    if (focused) this.refocus(label);
    if (!same || run) this.following = true;
    if (this.following) this.scrollToEnd();
  }

  /** After a rebuild: the same button of the last message, or the log. */
  refocus(label) {
    const last = this.list.lastElementChild;
    const buttons = [...last.querySelectorAll('button:not(:disabled)')];
    const same = label && buttons.find((button) => button.getAttribute('aria-label') === label);
    (same || this.scroller).focus({ preventScroll: true });
  }

  messageNode(message, index, run) {
    if (message.role === 'user') return this.userNode(message, index);
    if (message.role === 'tool') return toolResult(message);
    const isLast = index === this.chat.conversation.messages.length - 1;
    const running = run && run.message === message ? run : null;
    const view = new AnswerView({ chat: this.chat, message, index, isLast, run: running });
    if (running) this.live = view;
    return view.root;
  }

  onIdle(run) {
    if (!this.live || this.live.run !== run) return;
    this.live.finish();
    this.live = null;
    announce(endOf(run.answer));
  }

  trimLine() {
    const { model } = this.chat;
    const size = model && model.context_window ? ` (${model.context_window.toLocaleString('en-US')} tokens)` : '';
    return h('p', { class: 'trim-line', role: 'note' },
             h('span', {}, `The conversation is longer than the model’s context${size}: the turns above are no longer sent.`));
  }

  userNode(message, index) {
    const body = h('div', { class: 'bubble', text: message.content });
    const node = h('article', { class: 'message question', 'aria-label': 'You' }, body);
    const edit = iconButton('edit', 'Edit message', () => this.startEdit(node, message, index), { class: 'icon-button edit' });
    const copy = iconButton('copy', 'Copy message', async () => {
      await copyText(message.content);
      announce('Message copied.');
    });
    node.append(h('div', { class: 'question-tools' }, copy, edit));
    return node;
  }

  startEdit(node, message, index) {
    if (this.chat.run) {
      announce('Stop the answer first.');
      return;
    }
    const area = h('textarea', { class: 'edit-area', 'aria-label': 'Edit message', rows: '3', value: message.content });
    const cancel = () => {
      const back = this.userNode(message, index);
      node.replaceWith(back);
      back.querySelector('.edit').focus();
    };
    const submit = (event) => {
      event.preventDefault();
      if (area.value.trim()) this.chat.edit(index, area.value);
    };
    const keydown = (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        cancel();
      } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        submit(event);
      }
    };
    area.addEventListener('keydown', keydown);
    const below = this.chat.conversation.messages.length - 1 - index;
    node.replaceChildren(h('form', { class: 'edit-form', on: { submit } }, area,
      h('div', { class: 'row' },
        h('span', { class: 'quiet', text: below > 0 ? 'Sending replaces everything below.' : '' }),
        h('button', { type: 'button', class: 'button plain', text: 'Cancel', on: { click: cancel } }),
        h('button', { type: 'submit', class: 'button', text: 'Send' }))));
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }

  welcome() {
    if (this.chat.closed) return h('div', { class: 'welcome' }, icon('mark'), h('h2', { text: 'No chat with this model' }),
                                   h('p', { class: 'quiet', text: this.chat.closed }));
    const idea = (text) => h('button', { type: 'button', class: 'idea', on: { click: () => this.compose(text) } }, text);
    return h('div', { class: 'welcome' }, icon('mark'), h('h2', { text: 'What would you like to know?' }),
             h('p', { class: 'quiet', text: 'Runs on your machine. Conversations stay in this browser.' }),
             h('div', { class: 'ideas' }, kIdeas.map(idea)));
  }
}

function endOf(answer) {
  if (answer.error) return `The answer failed: ${answer.error.message}`;
  if (answer.stopped) return 'The answer was stopped.';
  return answer.toolCalls.length > 0 ? 'The model calls a tool.' : 'The answer is complete.';
}

function toolResult(message) {
  return h('details', { class: 'tool-call result', open: true },
           h('summary', {}, icon('tool'), h('span', { text: 'Result of ' }), h('code', { text: message.name })),
           h('pre', { tabindex: '0', role: 'region', 'aria-label': `Result of ${message.name}` },
             h('code', { text: message.content })));
}
