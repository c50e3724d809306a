import assert from 'node:assert/strict';
import fc from 'fast-check';
import { wordCount } from '../../dashboard/chat-view/answer-words.js';
import {
  EMPTY_MARKDOWN,
  grownMarkdown,
  type GrowingMarkdown,
} from '../../dashboard/chat-view/markdown/growing-markdown.js';
import { headingRanks } from '../../dashboard/chat-view/markdown/heading-ranks.js';
import { linkAddress } from '../../dashboard/chat-view/markdown/link-address.js';
import type { MarkdownNode } from '../../dashboard/chat-view/markdown/markdown-node.js';
import { readMarkdown } from '../../dashboard/chat-view/markdown/read-blocks.js';
import {
  lineParts,
  partBegins,
  tokenEnds,
  tokenPieces,
  wordParts,
} from '../../dashboard/chat-view/markdown/token-pieces.js';
import { textDirection } from '../../dashboard/chat-view/markdown/text-direction.js';
import { pauseMs } from '../../dashboard/chat-view/draw-pace.js';

/** Nodes as text: a leaf is its words, a branch is its kind (and detail) with its children in brackets. */
function outline(source: string, nodes: readonly MarkdownNode[]): string {
  return nodes
    .map(({ kind, from, to, detail, children }) => {
      if (kind === 'text') return source.slice(from, to);
      if (kind === 'replaced' || kind === 'sign') return `<${detail}>`;
      return `${kind}${detail === '' ? '' : `:${detail}`}[${outline(source, children)}]`;
    })
    .join('');
}

function read(source: string): string {
  return outline(source, readMarkdown(source, 0));
}

function allNodes(nodes: readonly MarkdownNode[]): MarkdownNode[] {
  return nodes.flatMap((node) => [node, ...allNodes(node.children)]);
}

function depthOf(nodes: readonly MarkdownNode[]): number {
  return nodes.length === 0 ? 0 : 1 + Math.max(...nodes.map(({ children }) => depthOf(children)));
}

describe('the Markdown of an answer', () => {
  it('has headings, emphasis, code, links, lists, quotes and rules', () => {
    assert.equal(read('# One *two*\n\nT\n==='), 'heading:1[One emphasis[two]]heading:1[T]');
    assert.equal(read('## x ##'), 'heading:2[x]');
    assert.equal(read('a **b `c*` d** ~~e~~'), 'paragraph[a strong[b code[c*] d] deleted[e]]');
    assert.equal(read('[w *x*](http://a.b/c "t")'), 'paragraph[link:http://a.b/c[w emphasis[x]]]');
    assert.equal(
      read('- a\n  more\n- [x] b\n- [ ] c'),
      'bullets[item[paragraph[a\nmore]]item[paragraph[<☑> b]]item[paragraph[<☐> c]]]',
    );
    assert.equal(read('7. a\n8. b\n\n   c'), 'numbers:7[item[paragraph[a]]item[paragraph[b]paragraph[c]]]');
    assert.equal(read('> a\n> b\n\n---'), 'quote[paragraph[a\nb]]rule[]');
    assert.equal(read('&lt; &#x41; &unknown; \\* a  \nb'), 'paragraph[<<> <A> &unknown; * a\nb]');
  });

  it('has tables with alignments, empty cells and no more cells than its head', () => {
    assert.equal(
      read('|a||b|\n|:-|:-:|-:|\n|x \\| y|`c`|\n|1|2|3|4|'),
      'table[row[cell:left[a]cell:center[]cell:right[b]]row[cell:left[x | y]cell:center[code[c]]]' +
        'row[cell:left[1]cell:center[2]cell:right[3]]]',
    );
  });

  it('has code with a language, without the indents of its list, and unclosed code is code', () => {
    assert.equal(read('```ts x\na\n  b\n```\nc'), 'code-block:ts[a\n  b]paragraph[c]');
    assert.equal(read('- x\n\n  ```\n  a\n    b\n  ```'), 'bullets[item[paragraph[x]code-block[a\n  b]]]');
    assert.equal(read('```js\n# no *heading*\n- x'), 'code-block:js[# no *heading*\n- x]');
  });

  it('keeps formulas as they were written', () => {
    assert.equal(
      read('so $a_1 * b_2$ and \\(c_d * e_f\\).'),
      'paragraph[so formula[$a_1 * b_2$] and formula[\\(c_d * e_f\\)].]',
    );
    assert.equal(read('a\n$$\nx\n+ y\n=\n$$\nb'), 'paragraph[a]formula-block[$$\nx\n+ y\n=\n$$]paragraph[b]');
    assert.equal(read('\\[ a_1 * b_1 \\]'), 'formula-block[\\[ a_1 * b_1 \\]]');
    assert.equal(read('$$a*b*$$ is'), 'paragraph[formula[$$a*b*$$] is]');
    assert.equal(read('> \\[\n> - x\n> \\]\n> y'), 'quote[formula-block[\\[\n- x\n\\]]paragraph[y]]');
    assert.equal(read('$5 to $10, *or* US$7'), 'paragraph[$5 to $10, emphasis[or] US$7]');
    assert.equal(read('$$\nnever closed\n\nnext'), 'formula-block[$$\nnever closed]paragraph[next]');
  });

  it('shows HTML, special tokens and signs without a form', () => {
    assert.equal(
      read('<script>x</script>\n\n<div>*a*</div>'),
      'paragraph[<script>x</script>]paragraph[<div>emphasis[a]</div>]',
    );
    assert.equal(
      read('a <|im_end|> <｜end｜> </s> <!-- c -->'),
      'paragraph[a special[<|im_end|>] special[<｜end｜>] </s> <!-- c -->]',
    );
    assert.equal(read('a\u202eb\u0007 \u2066c\u{e0041}'), 'paragraph[a<U+202E>b<U+0007> <U+2066>c<U+E0041>]');
    assert.equal(read('&#x202e;'), 'paragraph[<U+202E>]');
    assert.equal(read('```\n\u202e\n```'), 'code-block[<U+202E>]');
    // They hide, or turn the text, as well.
    for (const sign of ['200B', '00AD', '3164', '200E', '200F', '061C', 'FE0F', '200C', '200D', '034F', 'FFA0']) {
      const hidden = String.fromCodePoint(parseInt(sign, 16));
      assert.equal(read(`pay${hidden}pal`), `paragraph[pay<U+${sign}>pal]`);
    }
  });

  it('leaves signs without a form bare where a script or an emoji needs them', () => {
    const needed = [
      '👩\u200d🚀',
      '👩🏽\u200d🚀',
      '❤\ufe0f\u200d🔥',
      '1\ufe0f\u20e3',
      'می\u200cخواهم',
      'क्\u200dष',
      '葛\u{e0100}城',
      'می\u200c',
    ];
    for (const text of needed) assert.equal(read(text), `paragraph[${text}]`);
    assert.equal(read('1\ufe0f1 می\u200c\u200cخ'), 'paragraph[1<U+FE0F>1 می<U+200C><U+200C>خ]');
  });
});

describe('blocks of an answer', () => {
  it('leave no rank of headings out', () => {
    const blocks = readMarkdown('### a\n\n##### b\n\n### c\n\n# d\n\ntext\n\n###### e\n\n> # f', 0);
    assert.deepEqual([...headingRanks(blocks).values()], [2, 3, 2, 2, 3]);
  });

  it('have the direction of their first letter', () => {
    assert.equal(textDirection('- 12 שלום and', 0), 'rtl');
    assert.equal(textDirection('- (مرحبا)', 0), 'rtl');
    assert.equal(textDirection('- a שלום', 0), 'ltr');
    assert.equal(textDirection('- a שלום', 3), 'rtl');
    assert.equal(textDirection('12', 0), 'ltr');
  });
});

describe('links of an answer', () => {
  it('lead to http, https and mail alone', () => {
    assert.equal(linkAddress('https://a.b/c?d=1&amp;e=2'), 'https://a.b/c?d=1&e=2');
    assert.equal(linkAddress('www.a.b'), 'https://www.a.b/');
    assert.equal(linkAddress('me@a.b'), 'mailto:me@a.b');
    for (const wrong of [
      'javascript:alert(1)',
      'JaVaScRiPt:alert(1)',
      ' java\nscript:alert(1)',
      'data:text/html,x',
      'vbscript:x',
      'file:///etc/passwd',
      'blob:http://a/b',
      '/relative',
      '//a.b/c',
      '#x',
      `http://${'a'.repeat(5000)}`,
    ]) {
      assert.equal(linkAddress(wrong), null, wrong);
    }
  });

  it('that lead elsewhere, or nowhere, are shown as they were written', () => {
    for (const source of [
      '[a](javascript:alert(1))',
      '![a](data:image/png;base64,x)',
      '[1]',
      '[a][b]',
      '<javascript:a>',
    ]) {
      assert.equal(read(source), `paragraph[${source}]`);
    }
    assert.equal(read('[a]: http://b.c'), 'paragraph[[a]: link:http://b.c/[http://b.c]]');
  });

  it('stand in place of images, and hold no other link', () => {
    assert.equal(read('![cat](http://a/b.png)'), 'paragraph[link:http://a/b.png[cat]]');
    assert.equal(read('[![cat](http://a/b.png)](http://c/)'), 'paragraph[link:http://c/[cat]]');
    assert.equal(read('![](http://a/b.png)'), 'paragraph[link:http://a/b.png[![](http://a/b.png)]]');
  });
});

const PIECES = [
  'a',
  ' ',
  '\n',
  '\n\n',
  '#',
  '-',
  '``',
  '1.',
  'b',
  '- ',
  '  ',
  '1. ',
  '# ',
  '*',
  '**',
  '`',
  '```\n',
  '$$',
  '$',
  '|',
  '|-|',
  '> ',
  '---',
  '===',
  '[',
  '](http://a.b)',
  '\\',
  '<b>',
  '&amp;',
  '\t',
  '+ ',
  '🦊',
  '\u202e',
];
const MARKDOWN = fc.array(fc.constantFrom(...PIECES), { maxLength: 60 }).map((pieces) => pieces.join(''));

describe('Markdown that grows', () => {
  it('is at each step what its text is as a whole', () => {
    fc.assert(
      fc.property(MARKDOWN, fc.array(fc.nat(200), { maxLength: 20 }), (source, cuts) => {
        let grown = EMPTY_MARKDOWN;
        for (const cut of [...cuts.sort((left, right) => left - right), source.length]) {
          const part = source.slice(0, cut);
          grown = grownMarkdown(grown, part);
          assert.deepEqual(grown.blocks, readMarkdown(part, 0), JSON.stringify(part));
        }
      }),
      { numRuns: 500 },
    );
  });

  it('reads closed blocks once, and keeps the parts of the open block that stay', () => {
    const list = Array.from({ length: 50 }, (_, index) => `- item ${index}\n`).join('');
    const before = grownMarkdown(EMPTY_MARKDOWN, `# A\n\nb\n\n${list}`);
    const after = grownMarkdown(before, `${before.source}- more`);
    assert.equal(after.closedBlocks, 2);
    for (const index of [0, 1]) assert.equal(after.blocks[index], before.blocks[index]);
    const items = (grown: GrowingMarkdown): readonly MarkdownNode[] => grown.blocks[2]?.children ?? [];
    assert.equal(items(after).length, 51);
    assert.equal(items(after)[49], items(before)[49]);
    assert.equal(after.epoch, before.epoch);
    assert.notEqual(grownMarkdown(after, 'another text').epoch, after.epoch);
  });

  it('reads little for each of many steps', () => {
    let grown = EMPTY_MARKDOWN;
    const paragraph = `${'word '.repeat(80)}\n\n`;
    let longest = 0;
    for (let step = 0; step < 250; step++) {
      grown = grownMarkdown(grown, grown.source + paragraph);
      longest = Math.max(longest, grown.source.length - grown.openFrom);
    }
    assert.ok(grown.source.length > 100_000 && longest <= 2 * paragraph.length, String(longest));
  });
});

describe('a hostile answer', () => {
  const HOSTILE: Record<string, string> = {
    'lists in 10,000 levels': '- '.repeat(10_000) + 'a',
    'lists in 2000 levels, one a line': Array.from({ length: 2000 }, (_, index) => `${' '.repeat(2 * index)}- x`).join(
      '\n',
    ),
    'quotes in a million levels': '>'.repeat(1_000_000),
    'a line of 1 MB': 'word *x* '.repeat(110_000),
    'a word of 1 MB': 'x'.repeat(1_000_000),
    'links that never end': `${'[a]('.repeat(3990)}\n\n`.repeat(5),
    'brackets in brackets': `${'['.repeat(7990)}${']'.repeat(7990)}\n\n`.repeat(5),
    'emphasis that never ends': `${'*a **b '.repeat(2000)}\n\n`.repeat(5),
    'comments that never end': `${'<!--x'.repeat(3000)}\n\n`.repeat(5),
    'formulas that never end': `${'\\(a$b $$c'.repeat(1600)}\n\n`.repeat(5),
    'a table of 5000 columns': `${'|a'.repeat(5000)}|\n${'|-'.repeat(5000)}|\n|b|`,
    'a table of 60,000 rows': `|a|b|\n|-|-|\n${'|c|d|\n'.repeat(60_000)}`,
    'a list of 30,000 items': '- *a*\n'.repeat(30_000),
    'lines of blanks': `a|b\na|b\n${' '.repeat(15_900)}x\n\n`.repeat(5),
    'a heading with blanks': `# ${'#'.repeat(1000)}${' '.repeat(14_000)}x\n`.repeat(5),
  };
  for (const [name, source] of Object.entries(HOSTILE)) {
    it(`of ${name} becomes few, shallow nodes, and loses no character that can be seen`, () => {
      const { blocks } = grownMarkdown(EMPTY_MARKDOWN, source);
      const nodes = allNodes(blocks);
      assert.ok(depthOf(blocks) < 120, 'depth');
      assert.ok(nodes.length < 90_000, `${nodes.length} nodes`);
      const letters = (text: string): number => text.match(/[a-x]/g)?.length ?? 0;
      const shown = nodes.filter(({ kind }) => kind === 'text').map(({ from, to }) => source.slice(from, to));
      assert.equal(letters(shown.join('')), letters(source));
    });
  }
});

describe('the tokens of a text', () => {
  it('divide any range where they end; tokens without text have no piece', () => {
    const tokens = ['ab', '', 'c', 'def'].map((text) => ({ text }));
    assert.deepEqual(tokenEnds(tokens), [2, 2, 3, 6]);
    assert.deepEqual(tokenPieces(tokenEnds(tokens), 1, 5), [
      { token: 0, from: 1, to: 2 },
      { token: 2, from: 2, to: 3 },
      { token: 3, from: 3, to: 5 },
    ]);
    assert.deepEqual(tokenPieces(tokenEnds(tokens), 2, 2), []);
    assert.deepEqual(tokenPieces([], 0, 3), []);
  });

  it('of a long text are drawn in parts that cut no character', () => {
    assert.deepEqual(partBegins('ab🦊cd', 0, 6, 3), [0, 2, 5]);
    assert.deepEqual(partBegins('abcdef', 1, 6, 3), [1, 4]);
    const code = 'a\n\nbc\nd\n\ne\nf';
    const lines = lineParts(code, 0, code.length, 2).map(({ from, to }) => code.slice(from, to));
    assert.deepEqual(lines, ['a\n\nbc', 'd\n\ne', 'f']);
    const words = (text: string): string[] =>
      wordParts(text, 0, text.length, 3).map(({ from, to }) => text.slice(from, to));
    assert.deepEqual(words('ab cd ef gh'), ['ab cd ', 'ef gh']);
    assert.deepEqual(words('abcde🦊fgh i'), ['abcde', '🦊fgh ', 'i']);
  });
});

describe('what the page says of an answer', () => {
  it('counts words, and signs of scripts without blanks', () => {
    assert.equal(wordCount(''), 0);
    assert.equal(wordCount(' two  words\n'), 2);
    assert.equal(wordCount('日本語 and'), 4);
  });

  it('pauses after long draws only', () => {
    assert.equal(pauseMs(10), 0);
    assert.equal(pauseMs(100), 300);
  });
});
