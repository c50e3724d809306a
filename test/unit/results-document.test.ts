import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { resultsPath, runLinesAt } from '../../bench/history/index.js';
import { renewTables } from '../../bench/history/results-tables.js';
import type { RunLine } from '../../bench/history/run-line.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

const RUN: RunLine = {
  commit: '64561d6',
  date: '2026-11-20T10:11:12Z',
  machine: { cpu: 'AMD EPYC', cores: 2, memory_gib: 24, gpu: null, instruction_set: 'avx2', load: 0 },
  command: 'odmoe bench sample',
  note: null,
  figures: {
    rows: [
      { name: 'a', period: 1, share: 0.98765, us: { median: 1234.56 } },
      { name: 'a', period: 2, share: 0.5, us: { median: 8 } },
      { name: 'b', period: 1, share: null, us: { median: 0.25 } },
    ],
  },
};
const ORIGIN = `
    odmoe bench sample

2026-11-20, AMD EPYC, 2 cores, 24 GiB, avx2, commit 64561d6:

`;

/** The document with the comment of a table, and the given text in its place. */
function withTable(spec: string, body: string, first = 'sample 1 rows'): string {
  return `# Results\n\n<!-- table: ${first}\n${spec}\n-->\n${body}\n<!-- end of table -->\n\nThe end.\n`;
}

function renewed(spec: string, first?: string): string {
  return renewTables(withTable(spec, 'an older table', first), (name) => (name === 'sample' ? [RUN] : []));
}

describe('docs/results.md', () => {
  it('has the tables that "odmoe bench tables" makes from bench/history', () => {
    const document = readFileSync(resultsPath(packageRoot()), 'utf8');
    assert.match(document, /<!-- table: /);
    assert.equal(
      renewTables(document, (name) => runLinesAt(packageRoot(), name)),
      document,
    );
  });

  it('can be made from every file of bench/history: each of their lines is a run', () => {
    const files = readdirSync(join(packageRoot(), 'bench', 'history')).filter((name) => name.endsWith('.jsonl'));
    assert.ok(files.length > 0);
    for (const name of files) assert.ok(runLinesAt(packageRoot(), name.replace('.jsonl', '')).length > 0, name);
  });
});

describe('a table of docs/results.md', () => {
  it('shows the rows of a run with their origin, and leaves the text around it', () => {
    const spec = 'size | {name}\nmedian, us | {us.median}\nwhole | {us.median.0}\nshare | {share.1%}';
    const table = `| size | median, us | whole | share |
| --- | --- | --- | --- |
| a | 1,234.56 | 1,235 | 98.8 % |
| a | 8 | 8 | 50.0 % |
| b | 0.25 | 0 |  |
`;
    assert.equal(renewed(spec), withTable(spec, `${ORIGIN}${table}`));
    assert.equal(
      renewTables(renewed(spec), () => [RUN]),
      renewed(spec),
      'made twice',
    );
  });

  it('shows the chosen rows only', () => {
    assert.match(renewed('only name: b; c\nsize | {name}'), /\| --- \|\n\| b \|\n\n<!-- end/);
  });

  it('shows values across columns', () => {
    const table = `| size | period 1 | period 2 |
| --- | --- | --- |
| a | 1,235 | 8 |
| b | 0 |  |
`;
    const spec = 'size | {name}\nacross | period {period}\ncell | {us.median.0}';
    assert.equal(renewed(spec), withTable(spec, `${ORIGIN}${table}`));
  });

  it('is refused if what it names is not there', () => {
    const size = 'size | {name}';
    assert.throws(() => renewed(size, 'sample 2 rows'), /bench\/history\/sample\.jsonl has no line 2/);
    assert.throws(() => renewed(size, 'sample 1 row'), /have no list "row"/);
    assert.throws(() => renewed('size | {size}'), /no row has all values of "\{size\}"/);
    assert.throws(() => renewed('only name: c\nsize | {name}'), /no row is left/);
    assert.throws(() => renewed('a column'), /"a column" is no column/);
    assert.throws(() => renewed(`${size}\nacross | {period}`), /"across" and "cell" go together/);
  });

  it('is refused if its end is missing', () => {
    const cut = withTable('size | {name}', '').replace('<!-- end of table -->', '');
    assert.throws(() => renewTables(cut, () => [RUN]), /1 tables have no rows named in their first line, or no end/);
  });
});
