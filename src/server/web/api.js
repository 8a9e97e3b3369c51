// The server's HTTP interface. Every failure is an ApiError whose message can be shown to people.
// The API key lives in sessionStorage; a 401 asks for one and tries again.

import { readSlot, writeSlot } from './slots.js';
import { SseParser } from './sse.js';

const kKeySlot = 'kvasir.api-key';
const kRetryMs = 2000;

export class ApiError extends Error {
  constructor(message, { code = '', status = 0, param = null } = {}) {
    super(message);
    this.code = code;
    this.status = status;
    this.param = param;
  }

  /** Was the prompt too long for the model's context or the memory? */
  get isContext() {
    return this.status === 400 && this.code.startsWith('context_');
  }
}

/** Where the key is asked for: async (was the old one refused?) → key or null. Set by app.js. */
let askForKey = async () => null;
let asking = null;

export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** One question at a time, however many requests were refused. */
function newKey(refused) {
  asking ||= askForKey(refused).then((key) => {
    if (key) writeSlot('session', kKeySlot, key);
    return key;
  }).finally(() => { asking = null; });
  return asking;
}

async function send(path, { method = 'GET', body, signal } = {}) {
  for (;;) {
    const key = readSlot('session', kKeySlot);
    const headers = {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    const response = await reach(path, { method, headers, signal, cache: 'no-store',
                                         body: body === undefined ? undefined : JSON.stringify(body) });
    if (response.status !== 401) return response;
    if (!(await newKey(Boolean(key)))) throw await failure(response);
  }
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The server cannot be reached. Is it still running?', { code: 'unreachable' });
  }
}

async function failure(response) {
  let detail = {};
  try {
    detail = (await response.json()).error || {};
  } catch {
    detail = {};
  }
  return toError(detail, response.status, response.headers.get('Retry-After'));
}

function toError(detail, status, retryAfter = null) {
  let message = detail.message || `The server answered with status ${status}.`;
  if (status === 429 || status === 503) message += retryAfter ? ` Try again in ${retryAfter} s.` : ' Try again in a moment.';
  return new ApiError(message, { code: detail.code || '', status, param: detail.param });
}

async function json(path, options) {
  const response = await send(path, options);
  if (!response.ok) throw await failure(response);
  return response.json();
}

export const getProps = () => json('props');
export const getStats = () => json('stats');

/** The served model: {id, context_window, reasoning, vision, tools, owned_by}. */
export async function getModel() {
  const list = await json('v1/models');
  return (list.data && list.data[0]) || null;
}

/** Tokens of the prompt that these messages become. */
export async function countTokens(messages, tools, signal) {
  const body = tools ? { messages, tools } : { messages };
  const { prompt } = await json('apply-template', { method: 'POST', body, signal });
  const { tokens } = await json('tokenize', { method: 'POST', body: { content: prompt }, signal });
  return tokens.length;
}

/** Resolves when the server says it is ready; calls `waiting` while it does not. */
export async function untilReady(waiting) {
  for (;;) {
    try {
      const response = await fetch('health', { cache: 'no-store' });
      if (response.ok) return;
      waiting('The model is loading…');
    } catch {
      waiting('The server cannot be reached. Trying again…');
    }
    await new Promise((resolve) => { setTimeout(resolve, kRetryMs); });
  }
}

/**
 * Streams a chat completion: yields {chunk} for each chunk and {fed, total} while the prompt is
 * read. Throws ApiError; a stream that ends without its last chunk is an error too.
 */
export async function* streamChat(body, signal) {
  const response = await send('v1/chat/completions', { method: 'POST', body: { ...body, stream: true }, signal });
  if (!response.ok) throw await failure(response);
  let finished = false;
  for await (const event of events(response.body)) {
    if (event.comment !== undefined) {
      const progress = /^keepalive (\d+)\/(\d+)$/.exec(event.comment);
      if (progress) yield { fed: Number(progress[1]), total: Number(progress[2]) };
    } else if (event.data === '[DONE]') {
      return;
    } else {
      const chunk = parseChunk(event.data);
      if (chunk.error) throw toError(chunk.error, 0);
      finished ||= Boolean(chunk.choices && chunk.choices[0] && chunk.choices[0].finish_reason);
      yield { chunk };
    }
  }
  if (!finished) throw new ApiError('The connection ended before the answer was complete.', { code: 'broken_stream' });
}

function parseChunk(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiError('The server sent something that is not JSON.', { code: 'broken_stream' });
  }
}

async function* events(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The connection broke while the answer was arriving.', { code: 'broken_stream' });
  } finally {
    drain(reader);
  }
}

/** Reads what is left (little, after the last event), so that the connection can be used again. */
async function drain(reader) {
  try {
    while (!(await reader.read()).done);
  } catch {
    // It broke or was aborted: nothing is left.
  }
}
