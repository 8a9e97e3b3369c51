// Markdown emphasis: pairs runs of * _ ~ by CommonMark's rules and builds the inline tree.
// A run is {token, c, n, left, canOpen, canClose}; a token {text | node, opens: [tag], closes: n}.

const kMaxDepth = 20;

/** Pairs the marks from index `from` on; the bottoms keep failed searches from being repeated. */
export function pairMarks(marks, from) {
  const stack = [];
  const bottoms = new Map();
  for (let i = from; i < marks.length; i++) {
    const closer = marks[i];
    while (closer.canClose && closer.left > 0) {
      const key = `${closer.c}${closer.n % 3}${closer.canOpen}`;
      const bottom = bottoms.get(key) || 0;
      let o = stack.length - 1;
      while (o >= bottom && !matches(stack[o], closer)) o--;
      if (o < bottom) {
        bottoms.set(key, stack.length);
        break;
      }
      join(stack[o], closer);
      stack.length = stack[o].left === 0 ? o : o + 1;
      for (const [k, b] of bottoms) bottoms.set(k, Math.min(b, stack.length));
    }
    if (closer.canOpen && closer.left > 0) stack.push(closer);
  }
}

function matches(opener, closer) {
  if (opener.c !== closer.c) return false;
  if (opener.c === '~') return opener.left === closer.left && closer.left <= 2;
  const either = opener.canClose || closer.canOpen;
  return !(either && (opener.n + closer.n) % 3 === 0 && (opener.n % 3 !== 0 || closer.n % 3 !== 0));
}

function join(opener, closer) {
  const use = opener.c === '~' ? opener.left : Math.min(2, opener.left, closer.left);
  const kind = opener.c === '~' ? 'del' : use === 2 ? 'strong' : 'em';
  for (const side of [opener, closer]) {
    side.left -= use;
    side.token.text = side.token.text.slice(use);
  }
  opener.token.opens.unshift({ t: kind });
  closer.token.closes++;
}

/** Tokens to a tree: a token's closes, then its text, then its opens. */
export function buildTree(tokens) {
  const root = [];
  const stack = [root];
  let skipped = 0;  // tags beyond the depth limit: their text stays, they do not
  const text = (v) => {
    const kids = stack[stack.length - 1];
    const last = kids[kids.length - 1];
    if (last && last.t === 'text') last.v += v;
    else kids.push({ t: 'text', v });
  };
  for (const token of tokens) {
    for (let n = token.closes || 0; n > 0; n--) {
      if (skipped > 0) skipped--;
      else if (stack.length > 1) stack.pop();
    }
    if (token.node) stack[stack.length - 1].push(token.node);
    else if (token.text) text(token.text);
    for (const tag of token.opens || []) {
      if (stack.length > kMaxDepth) {
        skipped++;
        continue;
      }
      const node = { ...tag, kids: [] };
      stack[stack.length - 1].push(node);
      stack.push(node.kids);
    }
  }
  return root;
}
