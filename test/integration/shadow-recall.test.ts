import assert from 'node:assert/strict';
import { join } from 'node:path';
import { demoPrompts, MOST_PROMPTS } from '../../engine/fitting/demo-prompts.js';
import { measureRecall, type RecallOptions, type RecallReport } from '../../bench/recall/measure-recall.js';
import { chooseSetUps } from '../../bench/recall/set-ups.js';
import { promptTokenIds } from '../../engine/generation/prompt-encoder.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';

const DEMO_MODEL = join(packageRoot(), 'models', 'demo');
const GREEDY = resolveSampling(null, () => 0);
const ALIGNMENTS = [
  { token: 1, keyValue: 1 },
  { token: 0, keyValue: 0 },
];
/** Positions that the demo model works to. */
const DEMO_CONTEXT = 320;
const DEFAULT_TOKENS = 256;

function options(changes: Partial<RecallOptions>): RecallOptions {
  return {
    modelPath: DEMO_MODEL,
    prompts: demoPrompts(4),
    iterations: 64,
    stopAtEnd: false,
    sampling: GREEDY,
    threads: 1,
    setUps: chooseSetUps({ figure: null, precisions: null, alignments: ALIGNMENTS }),
    ...changes,
  };
}

describe('the recall of quantized shadows on the demo model', () => {
  let report: RecallReport;
  const progress: [number, number][] = [];

  before(async () => {
    report = await measureRecall(options({}), (done, total) => progress.push([done, total]));
  });

  function recallOf(precision: string, token: number): number {
    const found = report.results.find((result) => result.precision === precision && result.alignment.token === token);
    assert.ok(found !== undefined);
    return found.metrics.recall;
  }

  it('is near that of the model card when aligned at every iteration', () => {
    assert.ok(recallOf('fp16', 1) > 0.9995, `fp16 ${recallOf('fp16', 1)}`);
    assert.ok(recallOf('int8', 1) > 0.99, `int8 ${recallOf('int8', 1)}`);
    assert.ok(recallOf('nf4', 1) > 0.95, `nf4 ${recallOf('nf4', 1)}`);
  });

  it('falls without alignment, more so for coarser weights', () => {
    assert.ok(recallOf('nf4', 0) < recallOf('nf4', 1) - 0.1, `nf4 ${recallOf('nf4', 0)}`);
    assert.ok(recallOf('int8', 0) <= recallOf('int8', 1));
    assert.ok(recallOf('nf4', 1) < recallOf('int8', 1));
  });

  it('counts every activated expert of every iteration once, past the end of an answer too', () => {
    assert.equal(report.prompts, 4);
    assert.equal(report.iterations, 4 * 64);
    for (const { metrics } of report.results) {
      assert.equal(metrics.activated, report.iterations * 8 * 2, 'iterations x layers x top-k');
      assert.ok(metrics.activatedByIteration.every((count) => count === 4 * 8 * 2));
    }
    assert.equal(progress.length, 36, '3 precisions x 4 prompts x (main + 2 set-ups)');
    assert.deepEqual(progress.at(-1), [36, 36]);
  });

  it("is measured to the model's own end of answers on request", async () => {
    const setUps = chooseSetUps({ figure: null, precisions: ['int8'], alignments: [{ token: 1, keyValue: 1 }] });
    // A sum: the third prompt.
    const stopped = await measureRecall(
      options({ prompts: demoPrompts(3).slice(2), stopAtEnd: true, setUps }),
      () => undefined,
    );
    assert.ok(stopped.iterations > 0 && stopped.iterations < 30, `${stopped.iterations} iterations`);
  });

  it('follows sampled answers by their seed', async () => {
    const setUps = chooseSetUps({ figure: null, precisions: ['int8'], alignments: [{ token: 1, keyValue: 1 }] });
    const sampled = (seed: number): Promise<RecallReport> =>
      measureRecall(options({ sampling: { ...GREEDY, temperature: 1, seed }, setUps }), () => undefined);
    const [first, again, other] = [await sampled(7), await sampled(7), await sampled(8)];
    assert.deepEqual(first, again);
    assert.notDeepEqual(first, other);
    assert.ok((first.results[0]?.metrics.recall ?? 0) > 0.985);
  });

  it('is measured with different prompts that leave room for the answer', async () => {
    assert.ok(MOST_PROMPTS >= 96);
    const prompts = demoPrompts(MOST_PROMPTS);
    assert.equal(new Set(prompts).size, MOST_PROMPTS);
    const tokenizer = await openTokenizer(DEMO_MODEL);
    for (const text of prompts) {
      const { length } = promptTokenIds({ text, messages: [], promptTokenIds: [], raw: false }, tokenizer, 0);
      assert.ok(length + DEFAULT_TOKENS <= DEMO_CONTEXT, `${text}: ${length} tokens`);
    }
  });
});
