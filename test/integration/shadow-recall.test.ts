import assert from 'node:assert/strict';
import { join } from 'node:path';
import { measureRecall, type RecallReport } from '../../bench/recall/measure-recall.js';
import { MOST_PROMPTS, storyPrompts } from '../../bench/recall/story-prompts.js';
import { packageRoot } from '../../shared/config/package-root.js';

describe('recall of quantized shadows on the demo model', () => {
  let report: RecallReport;
  const progress: [number, number][] = [];

  before(async () => {
    const alignments = [
      { token: 1, keyValue: 1 },
      { token: 0, keyValue: 0 },
    ];
    const options = {
      prompts: storyPrompts(4),
      iterations: 64,
      precisions: ['fp16', 'int8', 'nf4'],
      alignments,
    } as const;
    const modelPath = join(packageRoot(), 'models', 'demo');
    report = await measureRecall({ ...options, modelPath, threads: 1 }, (done, total) => progress.push([done, total]));
  });

  function recallOf(precision: string, token: number): number {
    const found = report.results.find((result) => result.precision === precision && result.alignment.token === token);
    assert.ok(found !== undefined);
    return found.metrics.recall;
  }

  it('aligned at every iteration is near that of the model card', () => {
    assert.ok(recallOf('fp16', 1) > 0.9995, `fp16 ${recallOf('fp16', 1)}`);
    assert.ok(recallOf('int8', 1) > 0.99, `int8 ${recallOf('int8', 1)}`);
    assert.ok(recallOf('nf4', 1) > 0.95, `nf4 ${recallOf('nf4', 1)}`);
  });

  it('falls without alignment, the coarser the weights the further', () => {
    assert.ok(recallOf('nf4', 0) < recallOf('nf4', 1) - 0.1, `nf4 ${recallOf('nf4', 0)}`);
    assert.ok(recallOf('int8', 0) <= recallOf('int8', 1));
    assert.ok(recallOf('nf4', 1) < recallOf('int8', 1));
  });

  it('counts every activated expert of every iteration once', () => {
    assert.equal(report.prompts, 4);
    for (const { metrics } of report.results) {
      assert.equal(metrics.activated, report.iterations * 8 * 2, 'iterations x layers x top-k');
      assert.ok(metrics.activatedByIteration.length <= 64);
    }
    assert.deepEqual(progress.at(-1), [28, 28]);
  });

  it('has prompts that differ', () => {
    assert.equal(new Set(storyPrompts(MOST_PROMPTS)).size, MOST_PROMPTS);
  });
});
