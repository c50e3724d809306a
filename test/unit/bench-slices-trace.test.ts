/** Scores that a small model's trace recorded, in the tables of `odmoe bench slices --trace`, against counts made by hand. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { measureDecode, type DecodeRow } from '../../bench/slices/measure-decode.js';
import { measurePhases } from '../../bench/slices/measure-phases.js';
import { sliceSizesOf } from '../../bench/slices/modelled-cost.js';
import { recordedModel, type ScoredModel } from '../../bench/slices/scored-models.js';
import { recordTraceDocument } from '../../bench/trace/record-trace.js';
import { halfValue } from '../../packs/checkpoint/expert-biases.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { replayScores, thetaOfPrompt } from '../../simulator/slices/replay-scores.js';
import type { TraceDocument } from '../../simulator/trace/trace-file.js';

const TINY = join(packageRoot(), 'test', 'fixtures', 'mixtral');
const BIASED = join(packageRoot(), 'test', 'fixtures', 'minimaxm2');
const PROMPT_TOKENS = 20;
const ITERATIONS = 14;

describe('modelled tables of a recorded trace', function () {
  this.timeout(60_000);
  let directory: string;
  before(() => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-trace-'));
  });
  after(() => rmSync(directory, { recursive: true }));

  async function record(modelPath: string): Promise<{ path: string; document: TraceDocument; scored: ScoredModel }> {
    const prompts = [Array.from({ length: PROMPT_TOKENS }, (_, index) => (index * 7 + 1) % 60)];
    const beside = { quantize: 'projections', alignment: { token: 1, keyValue: 1 }, threads: 1, scores: true } as const;
    const recording = { modelPath, prompts, iterations: ITERATIONS, precision: 'int8', ...beside } as const;
    const document = await recordTraceDocument(recording, () => undefined);
    const path = join(directory, 'trace.json');
    writeFileSync(path, JSON.stringify(document));
    return { path, document, scored: await recordedModel(path, modelPath) };
  }

  /** Executions of the decode steps: step, layer, expert and renormalized weight, from the bytes of the trace. */
  function executionsOf({ prompts, layers, experts }: TraceDocument): { number: number; weight: number }[][] {
    const [prompt] = prompts;
    assert.ok(prompt?.scores !== undefined);
    const { activated, scores } = prompt;
    return activated.slice(PROMPT_TOKENS).map((ofPosition, step) => {
      const bytes = Buffer.from(scores[PROMPT_TOKENS + step] ?? '', 'base64');
      assert.equal(bytes.length, layers * experts * 2);
      return ofPosition.flatMap((chosen, layer) => {
        const values = chosen.map((expert) => halfValue(bytes.readUInt16LE((layer * experts + expert) * 2)));
        const sum = values.reduce((added, value) => added + value, 0);
        return chosen.map((expert, rank) => ({
          number: layer * experts + expert,
          weight: (values[rank] ?? 0) / sum,
        }));
      });
    });
  }

  const rowOf = (rows: readonly DecodeRow[], given: Partial<DecodeRow>): DecodeRow =>
    rows.find((row) => Object.entries(given).every(([key, value]) => row[key as keyof DecodeRow] === value)) ??
    assert.fail(JSON.stringify(given));

  it('count the bytes, critical executions and choices that follow from its bytes', async () => {
    const { document, scored } = await record(TINY);
    const steps = executionsOf(document);
    const executions = steps.flat();
    const { upperBytes, lowerBytes } = sliceSizesOf(scored.shape, { high: 8, low: 4 });
    const all = document.layers * document.experts * (upperBytes + lowerBytes);
    assert.deepEqual(
      scored.cachesGb.map((size) => Math.round((size * 1e9 * 1000) / all)),
      [125, 250, 500],
    );
    const [scores] = scored.prompts;
    assert.ok(scores !== undefined);
    const theta = thetaOfPrompt(scores, document.experts_per_token, 0.3);
    const critical = executions.filter(({ weight }) => weight >= theta);
    assert.ok(critical.length > 0 && critical.length < executions.length);
    const rows = measureDecode([{ ...scored, cachesGb: [0, (2 * all) / 1e9] }]);
    const none = rowOf(rows, { table: 'dbsc', policy: 'DBSC', start: 'empty', cache_gb: 0, steps: ITERATIONS });
    assert.equal(none.high, critical.length / executions.length);
    const fetched = executions.length * upperBytes + critical.length * lowerBytes;
    assert.ok(Math.abs(none.bytes * ITERATIONS - fetched) < 1e-6 * fetched);
    assert.deepEqual([none.model, none.mass], ['mixtral', 1]);
    const roomy = rowOf(rows, { table: 'dbsc', policy: 'DBSC', start: 'empty', cache_gb: (2 * all) / 1e9, steps: 10 });
    const distinct = (some: readonly { number: number }[]): number => new Set(some.map(({ number }) => number)).size;
    const first = steps.slice(0, 10).flat();
    const once = distinct(first) * upperBytes + distinct(first.filter(({ weight }) => weight >= theta)) * lowerBytes;
    assert.ok(Math.abs(roomy.bytes * 10 - once) < 1e-6 * once);
    const used = measurePhases([scored]).find(({ phase, steps: count }) => phase === 'decode' && count === 10)?.used;
    assert.equal(used, distinct(first) / (document.layers * document.experts));
  });

  it('miss in a full cache as often as an LRU list does that knows the activated experts alone', async () => {
    const { document, scored } = await record(TINY);
    const { layers, experts, experts_per_token: expertsPerToken } = document;
    const [scores] = scored.prompts;
    assert.ok(scores !== undefined);
    for (const room of [1, 3, 5]) {
      const list: number[] = [];
      let missed = 0;
      for (const { number } of executionsOf(document).flat()) {
        const at = list.indexOf(number);
        if (at >= 0) list.splice(at, 1);
        else missed += 1;
        list.unshift(number);
        list.length = Math.min(list.length, room);
      }
      const { steps } = replayScores(scores, {
        cache: { upperBytes: 7, lowerBytes: 0, layers, experts, capacityBytes: 7 * room },
        expertsPerToken,
        routing: { kind: 'top-k' },
        lowerFetch: 'wait',
        theta: Infinity,
        missTarget: null,
        start: 'empty',
        seed: 1,
      });
      const fetched = steps.flat().reduce((sum, { fetchedBytes }) => sum + fetchedBytes, 0);
      assert.equal(fetched, 7 * missed, `room for ${room}`);
      assert.ok(missed > layers * experts && missed <= steps.length * layers * expertsPerToken);
    }
  });

  it('have no rows of preferred cached experts where the routers choose by other numbers than their scores', async () => {
    const { scored } = await record(BIASED);
    const rows = measureDecode([scored]);
    assert.ok(
      rows.length > 0 && rows.every(({ lambda, target, mass }) => lambda === 0 && target === null && mass === 1),
    );
    const { scored: plain } = await record(TINY);
    assert.ok(measureDecode([plain]).some(({ lambda, target }) => lambda !== 0 || target !== null));
  });

  it('refuse a model of another shape, and a trace without scores', async () => {
    const { path, document } = await record(TINY);
    await assert.rejects(recordedModel(path, BIASED), { code: 'USAGE', message: /trace was recorded from/ });
    const prompts = document.prompts.map((prompt) => ({ ...prompt, scores: undefined }));
    writeFileSync(path, JSON.stringify({ ...document, version: 1, router_score: undefined, prompts }));
    await assert.rejects(recordedModel(path, TINY), { code: 'USAGE', message: /has no scores/ });
  });
});
