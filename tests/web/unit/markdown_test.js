import { GrowingMarkdown, renderMarkdown } from '/assets/render.js';
import { equal, ok, test } from './check.js';

/** The rendered HTML without attributes that do not matter here. */
function html(text) {
  const root = document.createElement('div');
  root.append(...renderMarkdown(text));
  return clean(root);
}

function clean(root) {
  return root.innerHTML.replace(/ (target|rel|tabindex|role|aria-label|scope|class|disabled)="[^"]*"/g, '').replace(/<br>/g, '<br/>');
}

function code(text) {
  const root = document.createElement('div');
  root.append(...renderMarkdown(text));
  return [...root.querySelectorAll('.code-block')].map((b) => [b.dataset.lang, b.querySelector('code').textContent]);
}

const cases = [
  ['paragraphs are split at blank lines', 'a\nb\n\nc', '<p>a\nb</p><p>c</p>'],
  ['headings start at the third level', '# A\n### B ###\n####### no', '<h3>A</h3><h5>B</h5><p>####### no</p>'],
  ['a hash without a space is text', '#tag', '<p>#tag</p>'],
  ['emphasis nests', '**a *b* c** ***d*** ~~e~~', '<p><strong>a <em>b</em> c</strong> <em><strong>d</strong></em> <del>e</del></p>'],
  ['marks that do not pair are text', '2 * 3 * 4 **open snake_case_name', '<p>2 * 3 * 4 **open snake_case_name</p>'],
  ['emphasis inside a word', 'un*frigging*believable', '<p>un<em>frigging</em>believable</p>'],
  ['overlapping marks pair from the inside', '*a **b* c**', '<p><em>a <em><em>b</em> c</em></em></p>'],
  ['a mark may serve twice', '**a*', '<p>*<em>a</em></p>'],
  ['inline code keeps marks', '`*a*` ``b ` c``', '<p><code>*a*</code> <code>b ` c</code></p>'],
  ['a lone backtick is text', 'a ` b', '<p>a ` b</p>'],
  ['escapes', '\\*a\\* \\# \\\\ \\(x\\) \\[y\\]', '<p>*a* # \\ \\(x\\) \\[y\\]</p>'],
  ['entities of HTML', '&lt;b&gt; &amp; &copy;', '<p>&lt;b&gt; &amp; &amp;copy;</p>'],
  ['links', '[a *b*](https://x.org/p "t") <https://y.org> <mailto:me@x.org>',
    '<p><a href="https://x.org/p">a <em>b</em></a> <a href="https://y.org/">https://y.org</a> <a href="mailto:me@x.org">mailto:me@x.org</a></p>'],
  ['a bare address ends before punctuation', 'see https://x.org/a(b)c. (https://y.org)',
    '<p>see <a href="https://x.org/a(b)c">https://x.org/a(b)c</a>. (<a href="https://y.org/">https://y.org</a>)</p>'],
  ['a link with parentheses', '[w](https://x.org/a_(b))', '<p><a href="https://x.org/a_(b)">w</a></p>'],
  ['an image is a link: nothing is fetched', '![cat](https://x.org/c.png)', '<p><a href="https://x.org/c.png">cat</a></p>'],
  ['hard line breaks', 'a  \nb\\\nc<br>d', '<p>a  <br/>b<br/>c<br/>d</p>'],
  ['lists', '- a\n- b\n\ntext', '<ul><li>a</li><li>b</li></ul><p>text</p>'],
  ['a nested list', '1. a\n   - b\n   - c\n2. d', '<ol><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ol>'],
  ['a nested list indented by two', '1. a\n  - b\n2. c', '<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>'],
  ['a list that starts elsewhere', '3. a\n4. b', '<ol start="3"><li>a</li><li>b</li></ol>'],
  ['a loose list has paragraphs', '- a\n\n- b', '<ul><li><p>a</p></li><li><p>b</p></li></ul>'],
  ['an item with a code block', '- a\n\n  ```\n  x\n    y\n  ```\n- b', null],
  ['another mark begins another list', '- a\n+ b', '<ul><li>a</li></ul><ul><li>b</li></ul>'],
  ['an item goes on without indentation', '- a\nb', '<ul><li>a\nb</li></ul>'],
  ['tasks', '- [x] a\n- [ ] b', '<ul><li><input type="checkbox">a</li><li><input type="checkbox">b</li></ul>'],
  ['quotes nest', '> a\n> > b\n\nc', '<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>'],
  ['a rule', 'a\n\n---\n***', '<p>a</p><hr><hr>'],
  ['tables', '|a|b|\n|:-|-:|\n|1 \\| 2|**3**|', '<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1 | 2</td><td><strong>3</strong></td></tr></tbody></table></div>'],
  ['a table needs its second line', '|a|b|\ntext', '<p>|a|b|\ntext</p>'],
  ['a table ends a paragraph', 'p\n|a|b|\n|-|-|', '<p>p</p><div><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody></tbody></table></div>'],
];

for (const [name, text, expected] of cases) {
  if (expected !== null) test(`markdown: ${name}`, () => equal(html(text), expected));
}

test('markdown: code blocks keep their text', () => {
  equal(code('```py\na = "<b>"  # *x*\n\n  b\n```\nafter'), [['py', 'a = "<b>"  # *x*\n\n  b']]);
  equal(code('~~~~\n```\n~~~\n~~~~'), [['', '```\n~~~']]);
  equal(code('- a\n\n  ```\n  x\n    y\n  ```\n- b'), [['', 'x\n  y']]);
});

test('markdown: a code block without its end goes to the end', () => equal(code('```js\nlet a;\n\n# b'), [['js', 'let a;\n\n# b']]));

test('markdown: colours do not change the text', () => {
  const text = 'def f(x):\n  """a\n  b"""\n  return 0x1F + len(\'it\\\'s\')  # done';
  equal(code(`\`\`\`python\n${text}\n\`\`\``), [['python', text]]);
});

test('markdown: any cut of a stream ends as the whole text', () => {
  const text = 'Intro *a*\n\n- one\n- two\n  - three\n\nmore\n- \n-x\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\nlet a = 1;\n\nlet b;\n```\n\n> q\nlazy\n\n1. x\n\n   y\n\nend\n---\nlast **bold**';
  const whole = html(text);
  for (const step of [1, 2, 3, 7, 20]) {
    const root = document.createElement('div');
    const view = new GrowingMarkdown(root);
    for (let i = step; i < text.length; i += step) view.update(text.slice(0, i));
    view.update(text, true);
    equal(clean(root), whole);
  }
});

test('markdown: finished blocks are not rendered again', () => {
  const root = document.createElement('div');
  const spoken = [];
  const view = new GrowingMarkdown(root, (t) => spoken.push(t));
  view.update('one\n\ntwo\n\nthr');
  const first = root.children[0];
  view.update('one\n\ntwo\n\nthree');
  view.update('one\n\ntwo\n\nthree', true);

  ok(root.children[0] === first, 'the first block was replaced');
  equal(spoken, ['one', 'two', 'three']);
});

test('markdown: a growing code block keeps its element', () => {
  const root = document.createElement('div');
  const view = new GrowingMarkdown(root);
  view.update('```js\nlet');
  const block = root.children[0];
  view.update('```js\nlet a = 1;\nlet');

  ok(root.children[0] === block, 'the block was replaced');
  equal(block.querySelector('code').textContent, 'let a = 1;\nlet');
});
