// Markdown trees to DOM nodes, and the view that grows with a stream.

import { copyText, h } from './dom.js';
import { highlight } from './highlight.js';
import { parseInline } from './inline.js';
import { parseBlocks } from './markdown.js';

/** A text as finished DOM nodes. */
export function renderMarkdown(text) {
  return parseBlocks(text).map((block) => renderBlock(block, true));
}

function renderBlock(block, done) {
  switch (block.t) {
    case 'h': return h(`h${Math.min(6, block.level + 2)}`, {}, inline(block.text));
    case 'hr': return h('hr');
    case 'quote': return h('blockquote', {}, block.kids.map((kid) => renderBlock(kid, done)));
    case 'list': return renderList(block, done);
    case 'table': return renderTable(block);
    case 'code': return renderCode(block, done);
    default: return h('p', {}, inline(block.text));
  }
}

function renderList(block, done) {
  const list = h(block.ordered ? 'ol' : 'ul', block.ordered && block.first !== 1 ? { start: block.first } : {});
  for (const item of block.items) {
    const li = h('li');
    if (item.checked !== undefined) {
      li.className = 'task';
      li.append(h('input', { type: 'checkbox', disabled: true, checked: item.checked,
                             'aria-label': item.checked ? 'done' : 'open' }));
    }
    for (const kid of item.kids) {
      if (kid.t === 'p' && !block.loose) li.append(...inline(kid.text));
      else li.append(renderBlock(kid, done));
    }
    list.append(li);
  }
  return list;
}

function renderTable(block) {
  const cell = (tag, text, column) => {
    const node = h(tag, tag === 'th' ? { scope: 'col' } : {}, inline(text));
    if (block.align[column]) node.classList.add(`align-${block.align[column]}`);
    return node;
  };
  const row = (tag, texts) => h('tr', {}, texts.map((text, column) => cell(tag, text, column)));
  return h('div', { class: 'table-scroll', tabindex: '0', role: 'region', 'aria-label': 'Table' },
           h('table', {}, h('thead', {}, row('th', block.head)), h('tbody', {}, block.rows.map((r) => row('td', r)))));
}

/** Colours come when the block is finished: a growing one only gets text appended. */
function renderCode(block, done) {
  const code = h('code', {});
  const fill = done ? highlight(block.text, block.lang) : [block.text];
  code.append(...fill);
  return h('div', { class: 'code-block', data: { lang: block.lang } },
           h('div', { class: 'code-head' }, h('span', { class: 'code-lang', text: block.lang || 'text' }), copyButton(code)),
           h('pre', { tabindex: '0', role: 'region', 'aria-label': block.lang ? `Code, ${block.lang}` : 'Code' }, code));
}

function copyButton(code) {
  const label = h('span', { text: 'Copy' });
  const click = async () => {
    await copyText(code.textContent);
    label.textContent = 'Copied';
    setTimeout(() => { label.textContent = 'Copy'; }, 1600);
  };
  return h('button', { type: 'button', class: 'copy-code', 'aria-label': 'Copy code', on: { click } }, label);
}

function inline(text) {
  return parseInline(text).map(renderInline);
}

function renderInline(node) {
  switch (node.t) {
    case 'text': return document.createTextNode(node.v);
    case 'code': return h('code', { text: node.v });
    case 'br': return h('br');
    case 'a': return h('a', { href: node.href, target: '_blank', rel: 'noopener noreferrer' }, node.kids.map(renderInline));
    default: return h(node.t, {}, node.kids.map(renderInline));
  }
}

/**
 * Shows a text that only grows. Blocks that can no longer change are rendered once and kept; what
 * follows them (usually one block) is replaced. A growing code block only has its text set.
 */
export class GrowingMarkdown {
  /** @param onBlock called with the text of each block that became final */
  constructor(root, onBlock = () => {}) {
    this.root = root;
    this.onBlock = onBlock;
    this.settled = 0;  // characters of the text whose blocks are final
    this.tail = [];
    this.tailKey = '';
  }

  update(text, done = false) {
    const rest = text.slice(this.settled);
    const lines = rest.split('\n');
    const blocks = parseBlocks(rest);
    // A block is final when a later block has begun with a whole line.
    let final = done ? blocks.length : 0;
    while (final + 1 < blocks.length && blocks[final + 1].start < lines.length - 1) final++;
    if (final === 0 && this.growCode(blocks)) return;
    for (const node of this.tail) node.remove();
    for (const block of blocks.slice(0, final)) {
      const node = renderBlock(block, true);
      this.root.append(node);
      this.onBlock(node.textContent);
    }
    this.settle(lines, blocks, final);
    this.tail = blocks.slice(final).map((block) => renderBlock(block, false));
    this.tailKey = tailKey(blocks.slice(final));
    this.root.append(...this.tail);
  }

  settle(lines, blocks, final) {
    if (final === 0) return;
    const until = final < blocks.length ? blocks[final].start : lines.length;
    for (let i = 0; i < until; i++) this.settled += lines[i].length + 1;
  }

  growCode(blocks) {
    if (!this.tailKey || tailKey(blocks) !== this.tailKey) return false;
    this.tail[0].querySelector('code').firstChild.data = blocks[0].text;
    return true;
  }
}

function tailKey(blocks) {
  return blocks.length === 1 && blocks[0].t === 'code' && blocks[0].text !== '' ? `code ${blocks[0].lang}` : '';
}
