// Markdown, block level: text in, a plain tree out (no DOM here).
// Every line is looked at a bounded number of times: nesting stops at kMaxDepth, where what is
// left is shown as text. HTML is never interpreted.

const kMaxDepth = 10;
const kMaxColumns = 64;

const kFence = /^ {0,3}(`{3,}|~{3,}) *([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?: (.*))?$/;
const kQuote = /^ {0,3}>/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])( |$)/;

/**
 * Parses a whole document.
 * @returns {Array} blocks; each has `t` (its kind) and `start`, `end` (lines, end excluded):
 *   {t:'p', text} {t:'h', level, text} {t:'code', lang, text} {t:'hr'} {t:'quote', kids}
 *   {t:'list', ordered, first, loose, items: [{kids, checked: true|false|undefined}]}
 *   {t:'table', align: [], head: [text], rows: [[text]]}
 */
export function parseBlocks(text) {
  return parseLines(text.split('\n').map(expandIndent), 0);
}

function expandIndent(line) {
  if (line.endsWith('\r')) line = line.slice(0, -1);
  const width = indentOf(line);
  if (line[width] !== '\t') return line;
  let i = 0;
  let columns = 0;
  for (; line[i] === ' ' || line[i] === '\t'; i++) columns += line[i] === '\t' ? 4 - (columns % 4) : 1;
  return ' '.repeat(columns) + line.slice(i);
}

function indentOf(line) {
  let i = 0;
  while (line[i] === ' ') i++;
  return i;
}

const isBlank = (line) => line.trim() === '';

function parseLines(lines, depth) {
  const blocks = [];
  let i = 0;
  while (i < lines.length) {
    if (isBlank(lines[i])) {
      i++;
      continue;
    }
    const block = parseOne(lines, i, depth);
    block.start = i;
    blocks.push(block);
    i = block.end;
  }
  return blocks;
}

function parseOne(lines, i, depth) {
  const fence = kFence.exec(lines[i]);
  if (fence) return parseFence(lines, i, fence);
  const heading = kHeading.exec(lines[i]);
  if (heading) return { t: 'h', level: heading[1].length, text: trimHashes(heading[2] || ''), end: i + 1 };
  if (isRule(lines[i])) return { t: 'hr', end: i + 1 };
  if (depth < kMaxDepth && kQuote.test(lines[i])) return parseQuote(lines, i, depth);
  if (depth < kMaxDepth && isItem(lines[i])) return parseList(lines, i, depth);
  if (isTableAt(lines, i)) return parseTable(lines, i);
  return parseParagraph(lines, i, depth);
}

function trimHashes(text) {
  const t = text.trim();
  let end = t.length;
  while (end > 0 && t[end - 1] === '#') end--;
  return end === 0 || t[end - 1] === ' ' ? t.slice(0, end).trim() : t;
}

function isRule(line) {
  const t = line.trim();
  if (t.length < 3 || !'-*_'.includes(t[0]) || indentOf(line) > 3) return false;
  let marks = 0;
  for (const c of t) {
    if (c === t[0]) marks++;
    else if (c !== ' ') return false;
  }
  return marks >= 3;
}

function parseFence(lines, i, fence) {
  const mark = fence[1];
  const indent = indentOf(lines[i]);
  const body = [];
  let end = i + 1;
  for (; end < lines.length; end++) {
    const t = lines[end].trim();
    if (t.length >= mark.length && t[0] === mark[0] && isAll(t, mark[0])) {
      end++;
      break;
    }
    body.push(lines[end].slice(Math.min(indent, indentOf(lines[end]))));
  }
  return { t: 'code', lang: fence[2].trim().split(/[\s{]/, 1)[0].slice(0, 40), text: body.join('\n'), end };
}

function isAll(text, c) {
  for (let i = 0; i < text.length; i++) if (text[i] !== c) return false;
  return true;
}

function parseQuote(lines, i, depth) {
  const inner = [];
  let end = i;
  for (; end < lines.length; end++) {
    const line = lines[end];
    if (kQuote.test(line)) {
      const rest = line.slice(line.indexOf('>') + 1);
      inner.push(rest.startsWith(' ') ? rest.slice(1) : rest);
    } else if (isBlank(line) || opensBlock(line, depth) || isBlank(inner[inner.length - 1])) {
      break;
    } else {
      inner.push(line);  // a paragraph goes on without its mark
    }
  }
  return { t: 'quote', kids: parseLines(inner, depth + 1), end };
}

function isItem(line) {
  return kItem.test(line) && !isRule(line);
}

function sameList(a, b) {
  const ordered = a.length > 1;
  return ordered === b.length > 1 && a[a.length - 1] === b[b.length - 1];
}

/** Items may be indented by less than their parent's text: models count in twos. */
function parseList(lines, i, depth) {
  const [, lead, mark] = kItem.exec(lines[i]);
  const list = { t: 'list', ordered: mark.length > 1, first: parseInt(mark, 10) || 0, loose: false, items: [], end: i };
  while (list.end < lines.length && isItem(lines[list.end])) {
    const [, pad, next] = kItem.exec(lines[list.end]);
    if (!sameList(mark, next) || pad.length > lead.length + 1) break;
    const item = takeItem(lines, list.end, pad.length, next, depth);
    list.items.push(finishItem(item.inner, depth));
    let after = item.end;
    while (after < lines.length && isBlank(lines[after])) after++;
    const goesOn = after < lines.length && isItem(lines[after]) && sameList(mark, kItem.exec(lines[after])[2]);
    if (item.loose || (goesOn && after > item.end)) list.loose = true;
    list.end = goesOn ? after : item.end;
    if (!goesOn) break;
  }
  return list;
}

function takeItem(lines, i, pad, mark, depth) {
  const text = lines[i].slice(pad + mark.length);
  const gap = indentOf(text);
  const width = pad + mark.length + (gap >= 1 && gap <= 4 ? gap : 1);
  const inner = [text.slice(Math.min(gap, gap <= 4 ? gap : 1))];
  let end = i + 1;
  let loose = false;
  let blanks = 0;
  for (; end + blanks < lines.length;) {
    const line = lines[end + blanks];
    if (isBlank(line)) {
      blanks++;
      continue;
    }
    const indent = indentOf(line);
    const belongs = indent >= width || (indent >= pad + 2 && (isItem(line) || blanks > 0));
    const lazy = !belongs && blanks === 0 && !opensBlock(line, depth) && !isBlank(inner[inner.length - 1]);
    if (!belongs && !lazy) break;
    for (let b = 0; b < blanks; b++) inner.push('');
    if (blanks > 0 && !isItem(line)) loose = true;
    inner.push(line.slice(Math.min(indent, width)));
    end += blanks + 1;
    blanks = 0;
  }
  return { inner, end, loose };
}

function finishItem(inner, depth) {
  const task = /^\[([ xX])\] /.exec(inner[0]);
  if (task) inner[0] = inner[0].slice(4);
  return { kids: parseLines(inner, depth + 1), checked: task ? task[1] !== ' ' : undefined };
}

/** Does this line end a paragraph before it? */
function opensBlock(line, depth) {
  return (
    kFence.test(line) || kHeading.test(line) || isRule(line) ||
    (depth < kMaxDepth && (kQuote.test(line) || (isItem(line) && line.trim().length > 2)))
  );
}

function parseParagraph(lines, i, depth) {
  const text = [lines[i].trimStart()];
  let end = i + 1;
  while (end < lines.length && !isBlank(lines[end]) && !opensBlock(lines[end], depth) && !isTableAt(lines, end)) {
    text.push(lines[end].trimStart());
    end++;
  }
  return { t: 'p', text: text.join('\n'), end };
}

function isTableAt(lines, i) {
  if (i + 1 >= lines.length || !lines[i].includes('|') || !lines[i + 1].includes('-')) return false;
  const marks = splitRow(lines[i + 1]);
  return marks.every((m) => /^:?-+:?$/.test(m)) && marks.length === splitRow(lines[i]).length;
}

function parseTable(lines, i) {
  const align = splitRow(lines[i + 1]).map((m) => {
    if (m.endsWith(':')) return m.startsWith(':') ? 'center' : 'right';
    return m.startsWith(':') ? 'left' : '';
  });
  const rows = [];
  let end = i + 2;
  while (end < lines.length && lines[end].includes('|')) rows.push(splitRow(lines[end++]).slice(0, align.length));
  return { t: 'table', align, head: splitRow(lines[i]), rows, end };
}

/** The cells of a row; `\|` is a pipe. Beyond kMaxColumns the rest stays in the last cell. */
function splitRow(line) {
  const row = line.trim();
  const cells = [];
  let from = row.startsWith('|') ? 1 : 0;
  for (let i = from; i < row.length && cells.length < kMaxColumns - 1; i++) {
    if (row[i] === '\\') i++;
    else if (row[i] === '|') {
      cells.push(row.slice(from, i));
      from = i + 1;
    }
  }
  if (from < row.length) cells.push(row.slice(from));
  return cells.map((c) => c.trim().replaceAll('\\|', '|'));
}
