import { addPoint, evaluateCurve, movePoint, prepareCurve, toLog, toPct } from '/assets/curve_math.js';
import {
  applyChunk, fittingTrim, mayExceed, newAnswer, newConversation, nextTrim, openCalls, titleFrom, toApiMessages,
} from '/assets/conversation.js';
import { formatBytes, formatDuration } from '/assets/dom.js';
import { checkField, kFields, loadSettings, parseTools, requestFields, stopList } from '/assets/settings.js';
import { SseParser } from '/assets/sse.js';
import { Store, beyondBounds } from '/assets/store.js';
import { equal, near, ok, test } from './check.js';

function conversationOf(turns, system = '') {
  const conversation = newConversation(system);
  for (let i = 0; i < turns; i++) {
    conversation.messages.push({ id: `q${i}`, role: 'user', content: `question ${i}` });
    conversation.messages.push({ id: `a${i}`, role: 'assistant', pick: 0, answers: [{ ...newAnswer(), content: `answer ${i}` }] });
  }
  return conversation;
}

// ---- server-sent events (SRV-32, 33)
test('sse: any cut gives the same events', () => {
  const text = ': keepalive 512/4096\n\ndata: {"a": 1}\n\ndata: x\r\ndata: y\r\n\r\nevent: z\ndata:[DONE]\n\n';
  const whole = [{ comment: 'keepalive 512/4096' }, { data: '{"a": 1}' }, { data: 'x\ny' }, { data: '[DONE]' }];
  for (let step = 1; step < text.length; step++) {
    const parser = new SseParser();
    const events = [];
    for (let i = 0; i < text.length; i += step) events.push(...parser.push(text.slice(i, i + step)));
    equal(events, whole);
  }
});

test('sse: an event without its blank line is not delivered', () => equal(new SseParser().push('data: half'), []));

// ---- answers
test('answer: deltas add up', () => {
  const answer = newAnswer();
  const delta = (d, finish = null) => applyChunk(answer, { choices: [{ delta: d, finish_reason: finish }] });
  delta({ role: 'assistant', content: '' });
  delta({ reasoning: 'hm' });
  delta({ content: 'a' });
  delta({ content: 'b' });
  delta({ tool_calls: [{ index: 0, id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a"' } }] });
  delta({ tool_calls: [{ index: 0, function: { arguments: ':1}' } }] });
  delta({}, 'tool_calls');
  applyChunk(answer, { choices: [], usage: { prompt_tokens: 3, completion_tokens: 4 } });

  equal([answer.content, answer.reasoning, answer.finish, answer.usage.completion_tokens], ['ab', 'hm', 'tool_calls', 4]);
  equal(answer.toolCalls, [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }]);
});

test('answer: an absurd tool index cannot make a huge list', () => {
  const answer = newAnswer();
  applyChunk(answer, { choices: [{ delta: { tool_calls: [{ index: 1e9, id: 'x', function: { name: 'f' } }] } }] });
  equal(answer.toolCalls.length, 1);
});

// ---- what is sent
test('request: system, history and tool results in the shape of the API', () => {
  const conversation = conversationOf(1, 'be kind');
  const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } };
  conversation.messages[1].answers = [{ ...newAnswer(), toolCalls: [call], reasoning: 'r' }];
  equal(openCalls(conversation, 1), [call]);
  conversation.messages.push({ id: 't', role: 'tool', callId: 'c1', name: 'f', content: '7' });

  equal(toApiMessages(conversation), [
    { role: 'system', content: 'be kind' },
    { role: 'user', content: 'question 0' },
    { role: 'assistant', content: '', reasoning: 'r', tool_calls: [call] },
    { role: 'tool', tool_call_id: 'c1', name: 'f', content: '7' },
  ]);
  equal(openCalls(conversation, 1), []);
});

test('request: an answer that failed at once is not sent', () => {
  const conversation = conversationOf(1);
  conversation.messages[1].answers[0].content = '';
  equal(toApiMessages(conversation).length, 1);
});

// ---- SRV-72
test('trim: the fewest oldest turns are dropped, the system message stays', async () => {
  for (let turns = 1; turns < 12; turns++) {
    for (let budget = 0; budget <= turns * 10; budget += 5) {
      const conversation = conversationOf(turns, 's');
      const count = async (trim) => (conversation.messages.length - trim) * 5;
      const trim = await fittingTrim(conversation, budget, count);
      const kept = turns - trim / 2;
      equal(kept, Math.max(1, Math.min(turns, Math.floor(budget / 10))));
      conversation.trim = trim;
      equal(toApiMessages(conversation)[0].role, 'system');
      equal(toApiMessages(conversation)[1].content, `question ${trim / 2}`);
    }
  }
});

test('trim: one more turn at a time, never the last', () => {
  const conversation = conversationOf(2);
  equal(nextTrim(conversation), 2);
  conversation.trim = 2;
  equal(nextTrim(conversation), null);
});

test('trim: few bytes need no counting', () => {
  const messages = [{ role: 'user', content: 'é'.repeat(100) }];
  ok(!mayExceed(messages, 300) && mayExceed(messages, 200), 'bytes, not characters, are counted');
});

// ---- settings
test('settings: only what was set is sent', () => {
  const settings = { ...loadSettings(), values: {}, stop: '', tools: '', curveOn: false };
  equal(requestFields(settings), {});
  Object.assign(settings, { values: { temperature: 0, seed: 7 }, stop: 'END\n\\n', curveOn: true, curve: [{ x_pct: 1, y_pct: 1 }, { x_pct: 100, y_pct: 100 }] });
  equal(requestFields(settings), { temperature: 0, seed: 7, stop: ['END', '\n'], curve: { points: settings.curve } });
});

test('settings: values are checked in words', () => {
  const field = (key) => kFields.find((f) => f.key === key);
  equal(checkField(field('top_p'), '1.5'), 'Top-p must be at most 1.');
  equal(checkField(field('top_k'), '1.5'), 'Top-k must be a whole number.');
  equal(checkField(field('temperature'), 'hot'), 'Temperature must be a number.');
  equal(checkField(field('presence_penalty'), '-1'), '');
  equal(checkField(field('seed'), ''), '');
  equal(stopList('a\\\\n'), ['a\\n']);
});

test('settings: tools may be bare functions', () => {
  equal(parseTools('{"name": "f"}'), [{ type: 'function', function: { name: 'f' } }]);
  equal(parseTools('[{"type": "function", "function": {"name": "f"}}]'), [{ type: 'function', function: { name: 'f' } }]);
  for (const bad of ['{', '[{}]', '[null]', '[1]']) {
    let threw = false;
    try { parseTools(bad); } catch { threw = true; }
    ok(threw, bad);
  }
});

// ---- SAMP-14
test('curve: passes through its points and is monotone between', () => {
  const points = [{ x_pct: 0.2, y_pct: 0.001 }, { x_pct: 2, y_pct: 1 }, { x_pct: 3, y_pct: 1 }, { x_pct: 100, y_pct: 90 }];
  const curve = prepareCurve(points);
  for (const p of points) near(evaluateCurve(curve, toLog(p.x_pct)), toLog(p.y_pct), 1e-12);
  let last = -Infinity;
  for (let x = toLog(1e-6); x < 0.1; x += 0.01) {
    const y = evaluateCurve(curve, x);
    ok(y >= last - 1e-12, `falls at ${toPct(x)}`);
    last = y;
  }
});

test('curve: tangents and slopes beyond the ends as SAMP-14 has them', () => {
  const curve = prepareCurve([{ x_pct: 100, y_pct: 100 }, { x_pct: 1, y_pct: 10 }, { x_pct: 10, y_pct: 20 }]);  // sorted first
  const h = Math.log(10);
  const [d1, d2] = [Math.log(2) / h, Math.log(5) / h];
  near(curve.m[0], d1, 1e-12);
  near(curve.m[1], (6 * h) / ((3 * h) / d1 + (3 * h) / d2), 1e-12);
  near(curve.m[2], d2, 1e-12);
  near(evaluateCurve(curve, toLog(1) - 2), toLog(10) - 2, 1e-12);  // slope max(M0, 1)
  near(evaluateCurve(curve, 1), d2, 1e-12);
});

test('curve: what the server refuses is refused', () => {
  equal(prepareCurve([{ x_pct: 1, y_pct: 1 }]), null);
  equal(prepareCurve([{ x_pct: 1, y_pct: 1 }, { x_pct: 1, y_pct: 2 }]), null);
  equal(prepareCurve([{ x_pct: 1, y_pct: 2 }, { x_pct: 2, y_pct: 1 }]), null);
});

test('curve: whatever is dragged, it stays monotone', () => {
  const range = { minX: 0.01, maxX: 100, minY: 0.001, maxY: 100 };
  let points = [{ x_pct: 0.1, y_pct: 0.1 }, { x_pct: 1, y_pct: 1 }, { x_pct: 10, y_pct: 10 }, { x_pct: 100, y_pct: 100 }];
  let seed = 7;
  const random = () => { seed = (seed * 48271) % 2147483647; return seed / 2147483647; };
  for (let k = 0; k < 3000; k++) {
    points = movePoint(points, Math.floor(random() * points.length), 10 ** (random() * 8 - 4), 10 ** (random() * 8 - 5), range);
    if (points.length < 8 && random() < 0.01) points = addPoint(points);
    ok(prepareCurve(points) !== null, JSON.stringify(points));
    ok(points.every((p) => p.x_pct >= 0.01 && p.x_pct <= 100 && p.y_pct >= 0.001 && p.y_pct <= 100), JSON.stringify(points));
  }
});

// ---- history
test('store: keeps, lists, replaces and removes', async () => {
  indexedDB.deleteDatabase('kvasir-unit');
  const store = await Store.open('kvasir-unit');
  ok(store.lasting, 'no IndexedDB');
  const [a, b] = [conversationOf(1), conversationOf(2)];
  Object.assign(a, { id: 'a', title: 'A', updated: 1 });
  Object.assign(b, { id: 'b', title: 'B', updated: 2 });
  await store.put(a);
  await store.put(b);

  equal((await store.list()).map((head) => head.title), ['B', 'A']);
  equal((await store.get('a')).messages.length, 2);
  await store.put({ ...a, title: 'A2', updated: 3 });
  equal((await store.list()).map((head) => head.title), ['A2', 'B']);
  await store.remove('b');
  equal(await store.get('b'), null);
});

test('store: without a database it still works for the page', async () => {
  const store = new Store(null);
  await store.put(conversationOf(1));
  equal((await store.list()).length, 1);
});

test('store: the longest unused go first, the one in use never', () => {
  const heads = ['a', 'b', 'c', 'd'].map((id) => ({ id, size: 10 }));
  equal(beyondBounds(heads, 'd', 2, 1000), ['c']);
  equal(beyondBounds(heads, 'a', 10, 25), ['c', 'd']);
});

test('words: sizes, times and titles', () => {
  equal([formatBytes(0), formatBytes(1536), formatBytes(6 * 2 ** 30), formatBytes(NaN)], ['0 B', '1.5 KiB', '6.0 GiB', '–']);
  equal([formatDuration(12.4), formatDuration(1234), formatDuration(61000)], ['12 ms', '1.23 s', '61.0 s']);
  equal(titleFrom('  one\ntwo'), 'one');
  equal(titleFrom('x'.repeat(99)).length, 60);
});
