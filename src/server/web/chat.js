// The conversation in use and the answers that are running. Tells the views by events:
//   'conversation' the one in use was replaced or its messages changed
//   'answer'       detail: the run whose answer grew     'idle' detail: the run that ended
//   'list'         heads changed in the store

import * as api from './api.js';
import {
  applyChunk, fittingTrim, mayExceed, newAnswer, newConversation, newId, nextTrim, pickedAnswer, titleFrom, toApiMessages,
} from './conversation.js';
import { requestFields } from './settings.js';

const kSaveMs = 1500;
/** After dropping turns the prompt fills this much of its budget: not every turn drops again. */
const kFillAfterTrim = 7 / 8;

export class Chat extends EventTarget {
  constructor(store, settings) {
    super();
    this.store = store;
    this.settings = settings;
    this.model = null;
    this.closed = '';  // why this model cannot answer here, if it cannot
    this.runs = new Map();  // conversation id → run
    this.conversation = newConversation(settings.system);
  }

  emit(type, detail = null) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** The run of the conversation in use, if any. */
  get run() {
    return this.runs.get(this.conversation.id) || null;
  }

  create() {
    this.conversation = newConversation(this.settings.system);
    this.emit('conversation');
  }

  /** A conversation has one object while it is in use or answering. */
  async find(id) {
    if (this.conversation.id === id) return this.conversation;
    const running = this.runs.get(id);
    return running ? running.conversation : this.store.get(id);
  }

  async open(id) {
    const found = await this.find(id);
    if (!found) return false;
    this.conversation = found;
    this.emit('conversation');
    return true;
  }

  async remove(id) {
    const running = this.runs.get(id);
    if (running) {
      running.removed = true;
      running.controller.abort();
    }
    await this.store.remove(id);
    if (this.conversation.id === id) this.create();
    this.emit('list');
  }

  async rename(id, title) {
    const conversation = await this.find(id);
    if (!conversation) return;
    conversation.title = title;
    await this.save(conversation);
    if (this.conversation.id === id) this.emit('conversation');
  }

  async save(conversation = this.conversation) {
    try {
      await this.store.put(structuredClone(conversation));
      this.emit('list');
    } catch {
      this.emit('unsaved');
    }
  }

  /** The page goes away: what has arrived is kept. */
  saveRuns() {
    for (const run of this.runs.values()) if (!run.removed) this.save(run.conversation);
  }

  async setSystem(text) {
    this.conversation.system = text;
    if (this.conversation.messages.length > 0) await this.save();
  }

  send(text) {
    if (this.run) return null;
    const { conversation } = this;
    if (!conversation.title) conversation.title = titleFrom(text);
    conversation.messages.push({ id: newId(), role: 'user', content: text });
    return this.answer();
  }

  /** Replaces a question and forgets all that followed it. */
  edit(index, text) {
    if (this.run) return null;
    const { conversation } = this;
    conversation.messages.length = index + 1;
    conversation.messages[index].content = text;
    conversation.trim = Math.min(conversation.trim, index);
    return this.answer();
  }

  /** Another answer to the last question; an empty failed one is replaced. */
  regenerate() {
    const message = this.conversation.messages[this.conversation.messages.length - 1];
    if (this.run || !message || message.role !== 'assistant') return null;
    const { content, reasoning, toolCalls } = pickedAnswer(message);
    if (!content && !reasoning && toolCalls.length === 0) message.answers.splice(message.pick, 1);
    return this.answer(message);
  }

  pick(message, pick) {
    message.pick = pick;
    this.save();
    this.emit('conversation');
  }

  /** @param results [{id, name, content}] for the calls of the last answer */
  sendToolResults(results) {
    if (this.run) return null;
    for (const { id, name, content } of results) {
      this.conversation.messages.push({ id: newId(), role: 'tool', callId: id, name, content });
    }
    return this.answer();
  }

  stop() {
    if (this.run) this.run.controller.abort();
  }

  /** Starts a run that adds an answer to `message`, or to a new one at the end. */
  answer(message = null) {
    const { conversation } = this;
    if (!message) {
      message = { id: newId(), role: 'assistant', answers: [], pick: 0 };
      conversation.messages.push(message);
    }
    const answer = newAnswer();
    message.answers.push(answer);
    message.pick = message.answers.length - 1;
    conversation.updated = Date.now();
    const run = { conversation, message, answer, controller: new AbortController(), started: performance.now(),
                  firstAt: 0, pieces: 0, prefill: null, savedAt: performance.now(), removed: false };
    this.runs.set(conversation.id, run);
    this.emit('conversation');
    this.save(conversation);
    return this.complete(run);
  }

  async complete(run) {
    try {
      const fields = requestFields(this.settings);
      await this.fit(run, fields);
      await this.attempt(run, fields);
    } catch (error) {
      if (error.name === 'AbortError') run.answer.stopped = true;
      else run.answer.error = { message: error.message, code: error.code || '' };
    }
    this.runs.delete(run.conversation.id);
    run.conversation.updated = Date.now();
    if (!run.removed) await this.save(run.conversation);
    this.emit('idle', run);
  }

  messagesOf(run, from = run.conversation.trim) {
    return toApiMessages(run.conversation, from, run.conversation.messages.indexOf(run.message));
  }

  /** Drops the oldest turns when the prompt is known to be too long. */
  async fit(run, fields) {
    const context = this.model && this.model.context_window;
    if (!context) return;
    const reserve = Math.min(fields.max_tokens || context / 8, context / 2);
    const budget = Math.floor(context - reserve);
    if (!mayExceed([...this.messagesOf(run), ...(fields.tools || [])], budget)) return;
    const count = (trim) => api.countTokens(this.messagesOf(run, trim), fields.tools, run.controller.signal);
    try {
      if ((await count(run.conversation.trim)) <= budget) return;
      this.trimTo(run, await fittingTrim(run.conversation, Math.floor(budget * kFillAfterTrim), count));
    } catch (error) {
      if (!(error instanceof api.ApiError) || error.status === 401) throw error;
      // A server that cannot count refuses prompts that are too long; attempt() then drops turns.
    }
  }

  trimTo(run, trim) {
    if (trim === run.conversation.trim) return;
    run.conversation.trim = trim;
    if (this.conversation === run.conversation) this.emit('conversation');
  }

  /** Streams the answer; a refusal for its length drops one more turn and tries again. */
  async attempt(run, fields) {
    for (;;) {
      try {
        await this.stream(run, fields);
        return;
      } catch (error) {
        const tooLong = error instanceof api.ApiError && error.isContext && run.pieces === 0;
        const trim = tooLong ? nextTrim(run.conversation) : null;
        if (trim === null) throw error;
        this.trimTo(run, trim);
      }
    }
  }

  async stream(run, fields) {
    const body = { model: this.model ? this.model.id : undefined, messages: this.messagesOf(run), ...fields };
    for await (const { chunk, fed, total } of api.streamChat(body, run.controller.signal)) {
      if (chunk) this.take(run, chunk);
      else run.prefill = { fed, total };
      this.emit('answer', run);
      if (performance.now() - run.savedAt > kSaveMs) {
        run.savedAt = performance.now();
        if (!run.removed) this.save(run.conversation);
      }
    }
  }

  take(run, chunk) {
    const { answer } = run;
    const before = answer.content.length + answer.reasoning.length + answer.toolCalls.length;
    applyChunk(answer, chunk);
    if (answer.content.length + answer.reasoning.length + answer.toolCalls.length === before) return;
    run.pieces++;
    run.prefill = null;
    if (run.firstAt) return;
    run.firstAt = performance.now();
    answer.firstMs = run.firstAt - run.started;
  }
}
