// What a model (or who speaks through it) may send to harm the page, or only its speed.

import { safeUrl } from '/assets/inline.js';
import { renderMarkdown } from '/assets/render.js';
import { equal, ok, test } from './check.js';

const kAllowed = new Set(('p h3 h4 h5 h6 hr blockquote ul ol li table thead tbody tr th td pre code a em strong del br div span ' +
                          'button input svg use').split(' '));

function render(text) {
  const root = document.createElement('div');
  root.append(...renderMarkdown(text));
  return root;
}

test('hostile: only harmless elements and attributes come out', () => {
  const root = render('<script>window.pwned=1</script><img src=x onerror=alert(1)>\n\n<iframe src=//e.org></iframe>\n\n' +
                      '[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](vbscript:x) [e](https:javascript:x)\n\n' +
                      '<javascript:alert(1)> [f](https://x.org/"onclick="alert(1)) `<b onclick=x>`\n\n```"><img src=x>\nx\n```\n\n' +
                      '|<b>|<script>|\n|-|-|\n|<svg onload=x>|x|');

  for (const node of root.querySelectorAll('*')) {
    ok(kAllowed.has(node.localName), `element ${node.localName}`);
    for (const { name, value } of node.attributes) {
      ok(!name.startsWith('on') && name !== 'style' && name !== 'src', `attribute ${name}`);
      if (name === 'href' && node.localName === 'a') ok(/^https?:\/\//.test(value), `address ${value}`);
    }
  }
  ok(root.textContent.includes('<script>window.pwned=1</script>'), 'HTML is shown as text');
  ok(!window.pwned, 'a script ran');
});

test('hostile: links cannot reach the opener', () => {
  const a = render('[a](https://x.org)').querySelector('a');
  equal([a.target, a.rel], ['_blank', 'noopener noreferrer']);
});

test('hostile: only http, https and mailto are addresses', () => {
  for (const url of ['javascript:alert(1)', ' javascript:x', 'java\nscript:x', 'data:text/html,x', 'file:///etc/passwd', '//x.org', '/path',
                     'blob:https://x', 'ftp://x', 'https://', '\u0001https://x', `https://x/${'a'.repeat(3000)}`]) {
    equal(safeUrl(url), null);
  }
  equal(safeUrl('HTTPS://X.org/a b'), 'https://x.org/a%20b');
});

test('hostile: nesting is bounded', () => {
  const depthOf = (node) => { let d = 0; for (let n = node; n; n = n.parentElement) d++; return d; };
  const texts = ['>'.repeat(5000) + ' x', '> '.repeat(5000) + 'x', '- '.repeat(5000) + 'x', '1. '.repeat(3000) + 'x',
                 Array.from({ length: 300 }, (_, i) => `${'  '.repeat(i)}- x`).join('\n'),
                 '*a **b '.repeat(2000) + 'b** a*'.repeat(2000), '['.repeat(3000) + 'a' + '](https://x.org)'.repeat(3000)];
  for (const text of texts) {
    const root = render(text);
    let deepest = 0;
    for (const node of root.querySelectorAll('*')) deepest = Math.max(deepest, depthOf(node));
    ok(deepest < 80, `depth ${deepest} for ${text.slice(0, 20)}`);
  }
});

/** Four times the text may take eight times as long (a square would take sixteen); the machine may
 * be busy, so the best of a few tries counts. */
const kTries = 12;
const kPatterns = {
  words: 'word ', stars: '*', 'open stars': '*a ', 'strong and em': '**a *b ', 'closed': '*a* ', underscores: '_a_b', tildes: '~', brackets: '[',
  'closing brackets': ']', links: '[a](', targets: '](', 'targets with text': '](x', backticks: '`', 'backtick runs': '`a``b```c', angles: '<',
  addresses: 'http://', 'glued addresses': 'http://a', 'bad addresses': 'https://%', backslashes: '\\', ampersands: '&', quotes: '>', 'quoted lines': '> a\n',
  'nested quotes': '> > > > > > > > > > > > x\n', items: '- a\n', 'empty items': '-\n', 'blank items': '- a\n\n\n', 'numbered': '1. a\n', 'indented items': '  - a\n    - b\n',
  'blank lines': '\n', spaces: ' ', 'space lines': '   \n', pipes: '|', 'table rows': '|a|b|\n', 'table starts': '|a|\n|-|\n', dashes: '-', 'dash lines': '- - -\n-a', fences: '```\n',
  'open fences': '```a\nx\n', hashes: '#', tabs: '\t', 'markers of lists': '- + ', 'mixed marks': '*_~*_~', exclamations: '![', 'quotes in items': '- > ', 'html': '<b>x</b>',
};

for (const [name, unit] of Object.entries(kPatterns)) {
  test(`hostile: 1 MB of ${name} takes linear time`, async () => {
    const time = (size) => {
      const text = unit.repeat(Math.ceil(size / unit.length));
      const start = performance.now();
      renderMarkdown(text);
      return performance.now() - start;
    };
    time(20_000);
    let words = '';
    for (let attempt = 0; attempt < kTries; attempt++) {
      const [quarter, full] = [time(250_000), time(1_000_000)];
      if (full < 1000 || full < 8 * quarter) return;
      words = `${Math.round(quarter)} ms, then ${Math.round(full)} ms`;
      await new Promise((resolve) => { setTimeout(resolve, 50 * (attempt + 1)); });
    }
    throw new Error(words);
  });
}
