// Model facts, and the server's memory and caches as bars. Asks /stats only while it can be seen.

import { getStats } from './api.js';
import { formatBytes, formatCount, h, meter, setMeter } from './dom.js';

const kPollMs = 2000;

export class ServerPanel {
  /** @param isVisible is the panel open on this tab? */
  constructor(facts, bars, isVisible) {
    this.facts = facts;
    this.bars = bars;
    this.isVisible = isVisible;
    this.timer = null;
    document.addEventListener('visibilitychange', () => this.refresh());
  }

  setModel(model, props) {
    const can = ['reasoning', 'vision', 'tools'].filter((ability) => model[ability]);
    this.modelRows = [
      ['Model', model.id],
      ['Context', model.context_window ? `${formatCount(model.context_window)} tokens` : '–'],
      ['Abilities', can.length > 0 ? can.join(', ') : 'text'],
      ['File', props.model_path || '–'],
      ['From', model.owned_by || '–'],
    ];
    this.drawFacts({});
  }

  drawFacts({ backend, version }) {
    const told = [['Runs on', backend], ['Kvasir', version]].filter(([, value]) => value);
    const rows = [...(this.modelRows || []), ...told];
    const shown = JSON.stringify(rows);
    if (shown === this.shownFacts) return;
    this.shownFacts = shown;
    const row = ([name, value]) => h('div', {}, h('dt', { text: name }), h('dd', { text: value }));
    this.facts.replaceChildren(...rows.map(row));
  }

  /** Starts or stops asking, by what is visible now. */
  refresh() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.isVisible() && document.visibilityState === 'visible') this.poll();
  }

  async poll() {
    this.timer = setTimeout(() => this.refresh(), kPollMs);
    try {
      this.draw(await getStats());
    } catch (error) {
      this.bars.replaceChildren(h('p', { class: 'quiet', text: error.message }));
    }
  }

  draw(stats) {
    this.drawFacts(stats.server || {});
    const rows = [...memoryBars(stats.kv, stats.admission), ...cacheBars('Prompt cache, memory', stats.prompt_cache),
                  ...cacheBars('Prompt cache, disk', stats.ssd_cache), ...batchBars(stats.batch)];
    while (this.bars.childElementCount > rows.length) this.bars.lastChild.remove();
    rows.forEach((row, i) => drawBar(this.bars, i, row));
  }
}

const isCount = (n) => typeof n === 'number' && n >= 0;

/** What conversations and cached prompts hold of the memory that is theirs. */
function memoryBars(kv, admission) {
  if (!kv || !isCount(kv.used_bytes) || !isCount(kv.total_bytes)) return [];
  const { used_bytes: used, total_bytes: total } = kv;
  const { weights_bytes: weights, max_safe_context: longest } = admission || {};
  const detail = [isCount(weights) ? `${formatBytes(weights)} of weights beside it` : '',
                  isCount(longest) ? `longest safe context ${formatCount(longest)}` : ''];
  return [{ name: 'Memory for conversations', used, total, text: `${formatBytes(used)} of ${formatBytes(total)}`, detail }];
}

function cacheBars(name, cache) {
  if (!cache || !isCount(cache.bytes) || !cache.max_bytes) return [];
  const asked = (cache.hits || 0) + (cache.misses || 0);
  const detail = [isCount(cache.entries) ? `${formatCount(cache.entries)} entries` : '',
                  asked > 0 ? `${Math.round((100 * (cache.hits || 0)) / asked)} % hits` : '',
                  cache.hit_tokens > 0 ? `${formatCount(cache.hit_tokens)} tokens reused` : ''];
  const text = `${formatBytes(cache.bytes)} of ${formatBytes(cache.max_bytes)}`;
  return [{ name, used: cache.bytes, total: cache.max_bytes, text, detail }];
}

function batchBars(batch) {
  if (!batch || !batch.configured) return [];
  const { active_rows: used, configured: total, preparing_rows: preparing, queued } = batch;
  const detail = [preparing > 0 ? `${preparing} preparing` : '', queued > 0 ? `${queued} waiting` : ''];
  return [{ name: 'Answers at once', used, total, text: `${used} of ${total}`, detail }];
}

/** Bars are kept between polls, so that they move instead of flicker. */
function drawBar(root, i, { name, used, total, text, detail }) {
  const id = `bar-${i}`;
  const node = root.children[i] || root.appendChild(h('div', { class: 'bar' },
    h('div', { class: 'bar-head' }, h('span', { id }), h('span')), meter({ 'aria-labelledby': id }), h('p', { class: 'hint' })));
  const [head, bar, hint] = node.children;
  head.children[0].textContent = name;
  head.children[1].textContent = text;
  setMeter(bar, total > 0 ? used / total : 0, text);
  hint.textContent = detail.filter(Boolean).join(' · ');
}
