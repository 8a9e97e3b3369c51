// One answer on the page: reasoning, text, tool calls, error, and the line of facts and buttons
// below. While it runs, update() is called once a frame at most.

import { openCalls, pickedAnswer } from './conversation.js';
import { announce, copyText, formatCount, formatDuration, h, icon, iconButton } from './dom.js';
import { GrowingMarkdown } from './render.js';

/** A frame's rendering may take this share of the time between frames. */
const kRenderShare = 4;

export class AnswerView {
  /** @param context {chat, message, index, isLast, run}: run is null for a finished answer */
  constructor(context) {
    Object.assign(this, context);
    this.answer = pickedAnswer(this.message);
    this.reasoningBody = h('div', { class: 'md reasoning-body' });
    this.summary = h('summary', {}, icon('thought'), h('span', { class: 'reasoning-label' }));
    this.reasoning = h('details', { class: 'reasoning', hidden: true }, this.summary, this.reasoningBody);
    this.content = h('div', { class: 'md' });
    this.tools = h('div', { class: 'tools' });
    this.foot = h('div', { class: 'answer-foot' });
    this.root = h('article', { class: 'message answer', 'aria-label': 'Answer', 'aria-busy': String(Boolean(this.run)) },
                  this.reasoning, this.content, this.tools, this.foot);
    const speak = (text) => { if (this.run && text.trim()) announce(text); };
    this.contentView = new GrowingMarkdown(this.content, speak);
    this.reasoningView = new GrowingMarkdown(this.reasoningBody);
    this.summary.addEventListener('click', () => { this.foldedByHand = true; });
    this.shownTools = '';
    if (this.run) this.startStatus();
    this.draw(!this.run);
  }

  /** Draws soon; at most once a frame, less often when drawing is slow. */
  update() {
    if (this.pending) return;
    this.pending = true;
    const wait = Math.max(0, (this.cost || 0) * kRenderShare - 16);
    setTimeout(() => requestAnimationFrame(() => {
      this.pending = false;
      if (!this.run) return;
      const start = performance.now();
      this.draw(false);
      this.cost = performance.now() - start;
    }), wait);
  }

  /** The run ended. The first drawing still speaks the last blocks, the second shows the end. */
  finish() {
    this.draw(true);
    this.run = null;
    this.root.setAttribute('aria-busy', 'false');
    this.draw(true);
  }

  draw(done) {
    const { answer } = this;
    this.drawReasoning(done);
    this.contentView.update(answer.content, done);
    this.content.classList.toggle('growing', Boolean(this.run && answer.content));
    this.drawTools(done);
    if (this.run) this.drawStatus();
    else this.drawFoot();
  }

  drawReasoning(done) {
    const { reasoning, content, toolCalls } = this.answer;
    if (!reasoning) return;
    const thinking = Boolean(this.run) && !content && toolCalls.length === 0;
    if (this.reasoning.hidden || (thinking !== this.thinking && !this.foldedByHand)) this.reasoning.open = thinking;
    this.reasoning.hidden = false;
    this.thinking = thinking;
    this.reasoning.classList.toggle('thinking', thinking);
    const label = thinking ? 'Thinking…' : `Reasoning · ${formatCount(reasoning.trim().split(/\s+/).length)} words`;
    this.summary.lastChild.textContent = label;
    this.reasoningView.update(reasoning, done || !thinking);
  }

  drawTools(done) {
    const state = JSON.stringify([this.answer.toolCalls, done, Boolean(this.run)]);
    if (state === this.shownTools) return;
    this.shownTools = state;
    this.tools.replaceChildren(...this.answer.toolCalls.map((call) => toolCall(call)));
    if (done && this.isLast && !this.run && this.answer.toolCalls.length > 0) this.tools.append(this.resultForm());
  }

  resultForm() {
    const fields = openCalls(this.chat.conversation, this.index).map((call, i) => {
      const area = h('textarea', { rows: '2', id: `result-${this.message.id}-${i}`, placeholder: 'What the tool returns' });
      const label = h('label', { for: area.id, text: `Result of ${call.function.name}` });
      return { call, area, row: h('div', { class: 'field' }, label, area) };
    });
    const submit = (event) => {
      event.preventDefault();
      const results = fields.map(({ call, area }) => ({ id: call.id, name: call.function.name, content: area.value }));
      this.chat.sendToolResults(results);
    };
    return h('form', { class: 'tool-results', on: { submit } }, fields.map((f) => f.row),
             h('button', { class: 'button', type: 'submit', text: fields.length > 1 ? 'Send results' : 'Send result' }));
  }

  startStatus() {
    this.bar = h('progress', { max: '1', value: 0, 'aria-label': 'Prompt read', hidden: true });
    this.status = h('span', { class: 'status-text' });
    this.foot.replaceChildren(h('span', { class: 'pulse', 'aria-hidden': 'true' }), this.status, this.bar);
  }

  drawStatus() {
    const { prefill, pieces, firstAt } = this.run;
    this.bar.hidden = !prefill;
    if (prefill) {
      this.bar.value = prefill.total > 0 ? Math.min(1, prefill.fed / prefill.total) : 0;
      this.status.textContent = `Reading the prompt: ${formatCount(prefill.fed)} of ${formatCount(prefill.total)} tokens`;
    } else if (pieces === 0) {
      this.status.textContent = 'Waiting for the first token…';
    } else {
      const seconds = (performance.now() - firstAt) / 1000;
      const speed = pieces > 1 && seconds > 0.2 ? ` · ${(pieces / seconds).toFixed(1)} tok/s` : '';
      this.status.textContent = `First token after ${formatDuration(this.answer.firstMs)}${speed}`;
    }
  }

  drawFoot() {
    this.foot.replaceChildren(...[this.errorBox(), this.note(), this.buttons()].filter(Boolean));
  }

  errorBox() {
    const { error, content } = this.answer;
    if (!error) return null;
    const kept = content ? h('p', { class: 'quiet', text: 'What had arrived is kept above.' }) : null;
    const retry = this.isLast ? h('button', { type: 'button', class: 'button', on: { click: () => this.chat.regenerate() } },
                                  icon('again'), 'Try again') : null;
    return h('div', { class: 'error', role: 'alert' }, h('div', {}, h('p', { text: error.message }), kept), retry);
  }

  note() {
    const { stopped, finish, error } = this.answer;
    const say = (text) => h('p', { class: 'note', text });
    if (stopped) return say('Stopped.');
    if (!finish && !error) return say('The page was closed before the answer was complete.');
    if (finish === 'length') return say('The answer reached the token limit. Raise “Longest answer” in the settings for more.');
    return null;
  }

  buttons() {
    const copy = iconButton('copy', 'Copy answer', async () => {
      await copyText(this.answer.content);
      announce('Answer copied.');
      copy.classList.add('done');
      setTimeout(() => copy.classList.remove('done'), 1200);
    });
    const mayAgain = this.isLast && !this.answer.error;
    const again = mayAgain ? iconButton('again', 'Regenerate answer', () => this.chat.regenerate()) : null;
    return h('div', { class: 'answer-tools' }, this.answer.content ? copy : null, again, this.chooser(),
             h('span', { class: 'facts', text: facts(this.answer) }));
  }

  chooser() {
    const { answers, pick } = this.message;
    if (answers.length < 2 || !this.isLast) return null;
    const go = (to) => () => this.chat.pick(this.message, to);
    return h('span', { class: 'chooser', role: 'group', 'aria-label': 'Answers' },
             iconButton('left', 'Previous answer', go(pick - 1), { disabled: pick === 0 }),
             h('span', { text: `${pick + 1} / ${answers.length}` }),
             iconButton('right', 'Next answer', go(pick + 1), { disabled: pick === answers.length - 1 }));
  }
}

function toolCall(call) {
  return h('details', { class: 'tool-call', open: true },
           h('summary', {}, icon('tool'), h('span', { text: 'Calls ' }), h('code', { text: call.function.name })),
           h('pre', { tabindex: '0', role: 'region', 'aria-label': `Arguments of ${call.function.name}` },
             h('code', { text: prettyJson(call.function.arguments) })));
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Speed and counts of a finished answer, as far as they are known. */
export function facts({ timings, usage, firstMs }) {
  const out = [];
  if (timings && timings.predicted_ms > 0) out.push(`${((1000 * timings.predicted_n) / timings.predicted_ms).toFixed(1)} tok/s`);
  if (firstMs !== null) out.push(`first token ${formatDuration(firstMs)}`);
  if (usage) out.push(`${formatCount(usage.completion_tokens)} tokens`);
  const cached = (usage && usage.prompt_tokens_details && usage.prompt_tokens_details.cached_tokens) || 0;
  if (cached > 0) out.push(`${formatCount(cached)} of ${formatCount(usage.prompt_tokens)} prompt tokens cached`);
  return out.join(' · ');
}
