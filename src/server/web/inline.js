// Markdown, inside a paragraph: text in, a plain tree out, in time linear in the text.
// Marks are collected as flat tokens first and paired with a stack; the tree is built in one walk
// whose depth is bounded.

import { buildTree, pairMarks } from './emphasis.js';

const kMaxUrl = 2048;
const kMaxParens = 8;
const kSpecial = /[\\`*_~[\]!<\n&]|https?:\/\//g;
const kPunctuation = /[\p{P}\p{S}]/u;
const kEntities = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&nbsp;': '\u00a0' };

/** Only these schemes may become links; returns the normalised address or null. */
export function safeUrl(raw) {
  if (raw.length > kMaxUrl || !/^(https?:\/\/|mailto:)/i.test(raw)) return null;
  try {
    const url = new URL(raw);
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/**
 * @returns {Array} nodes {t:'text'|'code', v}, {t:'br'}, {t:'em'|'strong'|'del', kids},
 *   {t:'a', href, kids}
 */
export function parseInline(text) {
  const scan = new Scanner(text);
  scan.run();
  pairMarks(scan.marks, 0);
  return buildTree(scan.tokens);
}

/** A token: {text}, {node} (a finished leaf) or a mark {text, ...}; opens/closes hold tags. */
class Scanner {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.tokens = [];
    this.marks = [];
    this.brackets = [];
    this.runs = null;
  }

  run() {
    const { text } = this;
    while (this.at < text.length) {
      kSpecial.lastIndex = this.at;
      const hit = kSpecial.exec(text);
      const stop = hit ? hit.index : text.length;
      if (stop > this.at) this.push(text.slice(this.at, stop));
      this.at = stop;
      if (hit) this.special(hit[0]);
    }
  }

  push(text) {
    this.tokens.push({ text });
  }

  leaf(node, length) {
    this.tokens.push({ node });
    this.at += length;
  }

  literal(length) {
    this.push(this.text.slice(this.at, this.at + length));
    this.at += length;
  }

  special(c) {
    if (c === '\\') return this.escape();
    if (c === '`') return this.code();
    if (c === '\n') return this.newline();
    if (c === '[') return this.openBracket(1);
    if (c === '!') return this.text[this.at + 1] === '[' ? this.openBracket(2) : this.literal(1);
    if (c === ']') return this.closeBracket();
    if (c === '<') return this.angle();
    if (c[0] === 'h') return this.bareUrl();
    if (c === '&') return this.entity();
    return this.mark(c);
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === '\n') return this.leaf({ t: 'br' }, 2);
    if (next && '!"#$%&\'*+,-./:;<=>?@\\^_`{|}~'.includes(next)) {
      this.push(next);
      this.at += 2;
    } else {
      // \( \) \[ \] mark formulas in what models write: their backslash is kept.
      this.literal(next && '()[]'.includes(next) ? 2 : 1);
    }
  }

  entity() {
    for (const [name, value] of Object.entries(kEntities)) {
      if (this.text.startsWith(name, this.at)) {
        this.push(value);
        this.at += name.length;
        return;
      }
    }
    this.literal(1);
  }

  newline() {
    const last = this.tokens[this.tokens.length - 1];
    const hard = last && last.text && last.text.endsWith('  ');
    if (hard) this.leaf({ t: 'br' }, 1);
    else this.literal(1);
  }

  /** Runs of backticks by length, so that a closing run is found without scanning again. */
  backtickRuns() {
    if (this.runs) return this.runs;
    this.runs = new Map();
    for (const m of this.text.matchAll(/`+/g)) {
      const n = m[0].length;
      if (!this.runs.has(n)) this.runs.set(n, { next: 0, at: [] });
      this.runs.get(n).at.push(m.index);
    }
    return this.runs;
  }

  code() {
    let n = 1;
    while (this.text[this.at + n] === '`') n++;
    const run = this.backtickRuns().get(n);
    while (run && run.next < run.at.length && run.at[run.next] <= this.at) run.next++;
    if (!run || run.next >= run.at.length) return this.literal(n);
    const end = run.at[run.next];
    let body = this.text.slice(this.at + n, end).replaceAll('\n', ' ');
    if (body.startsWith(' ') && body.endsWith(' ') && body.trim() !== '') body = body.slice(1, -1);
    this.leaf({ t: 'code', v: body }, end + n - this.at);
  }

  angle() {
    const piece = this.text.slice(this.at, this.at + kMaxUrl);
    const br = /^<br ?\/?>/i.exec(piece);
    if (br) return this.leaf({ t: 'br' }, br[0].length);
    const auto = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/i.exec(piece.slice(0, 8).includes(':') ? piece : '');
    const href = auto && safeUrl(auto[1]);
    if (!href) return this.literal(1);
    this.leaf({ t: 'a', href, kids: [{ t: 'text', v: auto[1] }] }, auto[0].length);
  }

  bareUrl() {
    const before = this.text[this.at - 1];
    if ((before && /[\p{L}\p{N}]/u.test(before)) || this.brackets.length > 0) return this.literal(4);
    const found = /^[^\s<>"`*|\\^{}[\]]+/.exec(this.text.slice(this.at, this.at + kMaxUrl))[0];
    const url = trimUrl(found);
    const href = safeUrl(url);
    if (!href) return this.literal(found.length);
    this.leaf({ t: 'a', href, kids: [{ t: 'text', v: url }] }, url.length);
  }

  openBracket(length) {
    const token = { text: this.text.slice(this.at, this.at + length) };
    this.tokens.push(token);
    this.brackets.push({ token, marks: this.marks.length });
    this.at += length;
  }

  closeBracket() {
    const open = this.brackets.pop();
    const target = open && this.text[this.at + 1] === '(' ? linkTarget(this.text, this.at + 2) : null;
    if (!target) return this.literal(1);
    pairMarks(this.marks, open.marks);
    this.marks.length = open.marks;
    const href = safeUrl(target.url);
    if (href) {
      open.token.text = '';
      open.token.opens = [{ t: 'a', href }];
      this.tokens.push({ text: '', closes: 1 });
    } else {
      this.push(this.text.slice(this.at, target.end));  // not a safe address: shown as written
    }
    this.at = target.end;
  }

  mark(c) {
    let n = 1;
    while (this.text[this.at + n] === c) n++;
    const before = this.text[this.at - 1] || ' ';
    const after = this.text[this.at + n] || ' ';
    const left = flanks(after, before);
    const right = flanks(before, after);
    const word = c === '_';
    const usable = c !== '~' || n <= 2;
    const token = { text: this.text.slice(this.at, this.at + n), opens: [], closes: 0 };
    this.tokens.push(token);
    this.marks.push({
      token, c, n, left: n,
      canOpen: usable && left && (!word || !right || kPunctuation.test(before)),
      canClose: usable && right && (!word || !left || kPunctuation.test(after)),
    });
    this.at += n;
  }
}

/** CommonMark's flanking rule, for a run whose inner side is `inner` and outer side `outer`. */
function flanks(inner, outer) {
  if (/\s/.test(inner)) return false;
  return !kPunctuation.test(inner) || /\s/.test(outer) || kPunctuation.test(outer);
}

function trimUrl(url) {
  let end = url.length;
  while (end > 0 && '.,;:!?\'"'.includes(url[end - 1])) end--;
  const body = url.slice(0, end);
  return body.endsWith(')') && !body.includes('(') ? body.slice(0, -1) : body;
}

/** Reads `url "title")` from `from`; bounded in length and in parentheses. */
function linkTarget(text, from) {
  const limit = Math.min(text.length, from + kMaxUrl);
  let i = from;
  let depth = 0;
  for (; i < limit; i++) {
    const c = text[i];
    if (c === '(' && ++depth > kMaxParens) return null;
    if (c === ')' && depth-- === 0) break;
    if (c === ' ' || c === '\n' || c === '<' || c === '\\') break;
  }
  const url = text.slice(from, i);
  if (text[i] === ' ') i = skipTitle(text, i + 1);
  return text[i] === ')' && i < limit ? { url, end: i + 1 } : null;
}

function skipTitle(text, i) {
  const quote = text[i];
  if (quote !== '"' && quote !== "'") return i;
  const part = text.slice(i + 1, i + 257);
  const end = part.indexOf(quote);
  return end < 0 ? i : i + 1 + end + 1;
}
