// Colours for code: comments, strings, numbers, keywords. One linear scan that knows families of
// languages, not languages; unknown ones and very long texts stay plain.

import { h } from './dom.js';

const kMaxLength = 100_000;

const words = (text) => new Set(text.split(' '));
const kCLike = words(
  'abstract as async auto await bool break case catch char class const constexpr continue default delete do double ' +
  'else enum export extends extern false final finally float fn for from func function go goto if impl implements ' +
  'import in inline int interface let long loop match mod move mut namespace new nil null nullptr override package ' +
  'private protected pub public return self short signed sizeof static string struct super switch template this ' +
  'throw trait true try type typedef typename undefined union unsigned use using var virtual void volatile where ' +
  'while yield');
const kScript = words(
  'and as assert async await break case class continue def del do done elif else end esac except export False fi ' +
  'finally for from function global if import in is lambda local module nil None not or pass raise require return ' +
  'self then True try unless until while with yield');
const kSql = words(
  'add all alter and as asc between by case create cross delete desc distinct drop else end exists foreign from ' +
  'full group having in inner insert into is join key left like limit not null offset on or order outer primary ' +
  'references right select set table then union unique update values view when where with');

const kFamilies = [
  { names: 'c h cc cpp c++ cxx hpp cuda java kotlin kt scala swift go rust rs js jsx javascript mjs ts tsx typescript ' +
           'cs csharp php dart zig css scss',
    line: '//', block: true, quotes: '"\'`', keywords: kCLike },
  { names: 'py python rb ruby sh bash zsh shell console perl r julia yaml yml toml ini dockerfile makefile cmake elixir',
    line: '#', block: false, quotes: '"\'', keywords: kScript },
  { names: 'sql sqlite mysql postgresql lua haskell hs', line: '--', block: true, quotes: '"\'', keywords: kSql, fold: true },
  { names: 'json jsonc json5', line: '//', block: true, quotes: '"', keywords: words('true false null') },
].map((family) => ({ ...family, names: words(family.names) }));

/** @returns {Array} text nodes' strings and coloured spans whose text together is `text` */
export function highlight(text, lang) {
  const family = kFamilies.find((f) => f.names.has(lang.toLowerCase()));
  if (!family || text.length > kMaxLength) return [text];
  const out = [];
  let plain = 0;
  const emit = (kind, from, to) => {
    if (from > plain) out.push(text.slice(plain, from));
    out.push(h('span', { class: `tok-${kind}`, text: text.slice(from, to) }));
    plain = to;
  };
  const token = /[A-Za-z_$][\w$]*|\d[\w.]*|["'`]|\/\/|\/\*|#|--/g;
  for (let m = token.exec(text); m; m = token.exec(text)) {
    const kind = classify(m[0], family);
    if (!kind) continue;
    let end = token.lastIndex;
    if (kind === 'string') end = stringEnd(text, m.index);
    if (kind === 'comment') end = commentEnd(text, m.index, m[0]);
    emit(kind, m.index, end);
    token.lastIndex = end;
  }
  if (plain < text.length) out.push(text.slice(plain));
  return out;
}

function classify(token, family) {
  if (token === family.line || (token === '/*' && family.block)) return 'comment';
  if (family.quotes.includes(token)) return 'string';
  if (/^\d/.test(token)) return 'number';
  return family.keywords.has(family.fold ? token.toLowerCase() : token) ? 'keyword' : null;
}

/** A string ends at its quote, or at the line's end; triple quotes and backticks span lines. */
function stringEnd(text, from) {
  const quote = text[from];
  const triple = quote !== '`' && text.startsWith(quote.repeat(3), from);
  if (triple) {
    const end = text.indexOf(quote.repeat(3), from + 3);
    return end < 0 ? text.length : end + 3;
  }
  for (let i = from + 1; i < text.length; i++) {
    if (text[i] === '\\') i++;
    else if (text[i] === quote) return i + 1;
    else if (text[i] === '\n' && quote !== '`') return i;
  }
  return text.length;
}

function commentEnd(text, from, opener) {
  const end = opener === '/*' ? text.indexOf('*/', from + 2) : text.indexOf('\n', from);
  if (end < 0) return text.length;
  return opener === '/*' ? end + 2 : end;
}
