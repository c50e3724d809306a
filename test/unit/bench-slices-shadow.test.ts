import assert from 'node:assert/strict';
import { join } from 'node:path';
import { demoPrompts } from '../../engine/fitting/demo-prompts.js';
import { measureRecall } from '../../bench/recall/measure-recall.js';
import { measureShadows, SHADOWS, type MeasuredShadow, type ShadowRow } from '../../bench/slices/measure-shadow.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const PROMPTS = 3;
const ITERATIONS = 12;

describe('the table of sliced shadows', () => {
  let rows: ShadowRow[] = [];
  const rowOf = (experts: string, attention: MeasuredShadow['attention'] = 'int8'): ShadowRow =>
    rows.find((row) => row.experts === experts && row.attention === attention) ?? assert.fail(experts);

  before(async () => {
    const options = { prompts: PROMPTS, iterations: ITERATIONS, onProgress: () => undefined };
    rows = await measureShadows(DEMO, { ...options, shadows: SHADOWS });
  });

  it('has a row for INT8 and NF4, and for each pair both slices and both readings of the upper one, with two kinds of attention', () => {
    assert.equal(new Set(rows.map(({ experts, attention }) => `${experts} ${attention}`)).size, 2 + 2 * 3 * 3);
    for (const pair of ['(8,4)', '(6,3)', '(4,2)']) {
      for (const kind of ['high', 'low', 'low centred']) {
        assert.ok(rowOf(`${pair} ${kind}`).bytes < rowOf(`${pair} ${kind}`, 'lossless').bytes);
      }
      assert.equal(rowOf(`${pair} low`).bytes, rowOf(`${pair} low centred`).bytes);
      assert.ok(rowOf(`${pair} low`).bytes < rowOf(`${pair} high`).bytes);
    }
  });

  it('has the recall of bench recall, to the bit', async () => {
    const precisions = ['int8', 'nf4', 'sliced(8,4)', 'sliced(4,2,low)'] as const;
    const report = await measureRecall(
      {
        modelPath: DEMO,
        prompts: demoPrompts(PROMPTS),
        iterations: ITERATIONS,
        stopAtEnd: false,
        sampling: resolveSampling(null, () => 0),
        setUps: precisions.map((precision) => ({ precision, alignment: { token: 1, keyValue: 1 } })),
        threads: 1,
      },
      () => undefined,
    );
    const expected = report.results.map(({ metrics }) => metrics.recall);
    const found = [rowOf('int8'), rowOf('nf4', 'nf4'), rowOf('(8,4) high'), rowOf('(4,2) low centred')];
    assert.deepEqual(
      found.map(({ recall }) => recall),
      expected,
    );
    assert.ok(new Set(expected).size > 2, `${expected.join()}: the precisions tell nothing apart`);
  });

  it('falls with the bits that a shadow has of an expert', () => {
    const recalls = ['(8,4) high', '(6,3) low centred', '(4,2) low centred'].map((name) => rowOf(name).recall);
    assert.deepEqual([...recalls].sort().reverse(), recalls);
    assert.ok((recalls[0] ?? 0) > 0.99 && (recalls[2] ?? 1) < 0.97, recalls.join());
    assert.ok(rowOf('(4,2) low').recall < rowOf('(4,2) low centred').recall);
  });
});
