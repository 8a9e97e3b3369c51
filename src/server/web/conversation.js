// A conversation as data: what is kept, what is sent. No DOM, no network.
//
// conversation {id, title, created, updated, system, trim, messages}
//   message  {id, role: 'user', content}
//            {id, role: 'assistant', answers: [answer], pick}: regenerating adds an answer
//            {id, role: 'tool', callId, name, content}
//   answer   {content, reasoning, toolCalls, finish, error, usage, timings, firstMs, stopped}
//   trim     index of the first message that is sent; those before it no longer fit the context

const kTitleLength = 60;

export function newId() {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
}

export function newConversation(system = '') {
  const now = Date.now();
  return { id: newId(), title: '', created: now, updated: now, system, trim: 0, messages: [] };
}

export function newAnswer() {
  return { content: '', reasoning: '', toolCalls: [], finish: null, error: null, usage: null, timings: null,
           firstMs: null, stopped: false };
}

export const pickedAnswer = (message) => message.answers[message.pick];

/** A title from the first question. */
export function titleFrom(text) {
  const line = text.trim().split('\n', 1)[0].replace(/\s+/g, ' ');
  return line.length > kTitleLength ? `${line.slice(0, kTitleLength - 1).trimEnd()}…` : line;
}

/** The messages in the API's shape, from index `from` on (messages before `until` only). */
export function toApiMessages(conversation, from = conversation.trim, until = conversation.messages.length) {
  const out = conversation.system.trim() ? [{ role: 'system', content: conversation.system }] : [];
  for (const message of conversation.messages.slice(from, until)) {
    if (message.role === 'user') out.push({ role: 'user', content: message.content });
    else if (message.role === 'tool') out.push(resultToApi(message));
    else out.push(...answerToApi(pickedAnswer(message)));
  }
  return out;
}

function resultToApi({ callId, name, content }) {
  return { role: 'tool', tool_call_id: callId, name, content };
}

/** An answer that failed before its first word is not sent. */
function answerToApi(answer) {
  if (!answer.content && answer.toolCalls.length === 0 && !answer.reasoning) return [];
  const message = { role: 'assistant', content: answer.content };
  if (answer.reasoning) message.reasoning = answer.reasoning;
  if (answer.toolCalls.length > 0) message.tool_calls = answer.toolCalls;
  return [message];
}

/** Indices where turns begin (user messages), from `from` on. */
export function turnStarts(conversation, from = 0) {
  const starts = [];
  conversation.messages.forEach((m, i) => { if (i >= from && m.role === 'user') starts.push(i); });
  return starts;
}

/**
 * The smallest trim (a turn's start) whose prompt has at most `budget` tokens; the last turn is
 * always kept. `count` is async (trim) → tokens and falls as trim rises.
 */
export async function fittingTrim(conversation, budget, count) {
  const starts = turnStarts(conversation, conversation.trim);
  if (starts.length <= 1 || (await count(conversation.trim)) <= budget) return conversation.trim;
  let low = 1;
  let high = starts.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((await count(starts[middle])) <= budget) high = middle;
    else low = middle + 1;
  }
  return starts[high];
}

/** The next trim that drops one more turn, or null when only one is left. */
export function nextTrim(conversation) {
  const starts = turnStarts(conversation, conversation.trim);
  return starts.length > 1 ? starts[1] : null;
}

/** Can the prompt be too long? A token is at least one byte, so few bytes need no counting. */
export function mayExceed(messages, budget) {
  const overhead = 16;  // marks of the template, a message
  let bytes = 0;
  for (const message of messages) bytes += new TextEncoder().encode(JSON.stringify(message)).length + overhead;
  return bytes > budget;
}

/** Takes one streamed chunk into the answer. */
export function applyChunk(answer, chunk) {
  if (chunk.usage) answer.usage = chunk.usage;
  if (chunk.timings) answer.timings = chunk.timings;
  const choice = chunk.choices && chunk.choices[0];
  if (!choice) return;
  if (choice.finish_reason) answer.finish = choice.finish_reason;
  const delta = choice.delta || {};
  if (delta.content) answer.content += delta.content;
  const reasoning = delta.reasoning || delta.reasoning_content;
  if (reasoning) answer.reasoning += reasoning;
  for (const piece of delta.tool_calls || []) addToolPiece(answer.toolCalls, piece);
}

function addToolPiece(calls, piece) {
  const known = Number.isInteger(piece.index) && piece.index >= 0 && piece.index <= calls.length;
  const index = known ? piece.index : calls.length;
  const call = (calls[index] ||= { id: '', type: 'function', function: { name: '', arguments: '' } });
  if (piece.id) call.id = piece.id;
  if (piece.function && piece.function.name) call.function.name = piece.function.name;
  if (piece.function && piece.function.arguments) call.function.arguments += piece.function.arguments;
}

/** Calls of the last answer that have no result yet. */
export function openCalls(conversation, index) {
  const message = conversation.messages[index];
  const answered = new Set();
  for (let i = index + 1; i < conversation.messages.length && conversation.messages[i].role === 'tool'; i++) {
    answered.add(conversation.messages[i].callId);
  }
  return pickedAnswer(message).toolCalls.filter((call) => !answered.has(call.id));
}
