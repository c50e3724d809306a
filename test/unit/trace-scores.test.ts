/** Traces of version 2, recorded from a model: the scores of all experts, and their replay through a logical cache. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { recordTraceDocument } from '../../bench/trace/record-trace.js';
import { openRouters } from '../../bench/trace/record-scores.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { recordedScores } from '../../simulator/slices/recorded-scores.js';
import { replayScores, thetaOfPrompt } from '../../simulator/slices/replay-scores.js';
import { parseTrace, type TraceDocument } from '../../simulator/trace/trace-file.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const PROMPT = Array.from({ length: 20 }, (_, n) => (n * 37 + 11) % 300);
const ITERATIONS = 12;
const SIZES = { upperBytes: 19, lowerBytes: 16 };

describe('a recorded trace of version 2', function () {
  this.timeout(60_000);
  let document: TraceDocument;

  before(async () => {
    const recording = { modelPath: DEMO, prompts: [PROMPT], iterations: ITERATIONS, precision: 'int8' } as const;
    const beside = { quantize: 'projections', alignment: { token: 1, keyValue: 1 }, threads: 1 } as const;
    const recorded = await recordTraceDocument({ ...recording, ...beside, scores: true }, () => undefined);
    const without = await recordTraceDocument({ ...recording, ...beside, scores: false }, () => undefined);
    assert.deepEqual([without.version, recorded.version], [1, 2]);
    const [prompt] = without.prompts;
    assert.ok(prompt !== undefined && !('scores' in prompt) && !('router_score' in without));
    const scores = recorded.prompts[0]?.scores;
    assert.deepEqual(recorded, { ...without, version: 2, router_score: 'softmax', prompts: [{ ...prompt, scores }] });
    document = parseTrace(JSON.stringify(recorded), 'trace.json');
  });

  it('has scores that sum to 1 and whose highest ones are the activated experts', () => {
    const { positions, promptTokens } = recordedScores(document, 0);
    assert.deepEqual([promptTokens, positions.length], [PROMPT.length, PROMPT.length + ITERATIONS]);
    positions.forEach((layers, position) => {
      layers.forEach(({ scores }, layer) => {
        const all = Array.from(scores);
        assert.ok(Math.abs(all.reduce((sum, score) => sum + score, 0) - 1) < 0.002);
        const chosen = document.prompts[0]?.activated[position]?.[layer] ?? [];
        assert.equal(chosen.length, 2);
        const least = Math.min(...chosen.map((expert) => all[expert] ?? 0));
        assert.ok(all.every((score, expert) => chosen.includes(expert) || score <= least));
      });
    });
  });

  it('replays through a logical cache in place of synthetic scores', () => {
    const scores = recordedScores(document, 0);
    const { layers, experts } = document;
    const rules = {
      expertsPerToken: 2,
      routing: { kind: 'top-k' },
      lowerFetch: 'wait',
      theta: thetaOfPrompt(scores, 2, 0.3),
      missTarget: null,
      start: 'empty',
      seed: 1,
    } as const;
    const replayed = (capacityBytes: number): { fetched: number; high: number; mass: Set<number> } => {
      const { steps } = replayScores(scores, { ...rules, cache: { ...SIZES, layers, experts, capacityBytes } });
      const tallies = steps.flat();
      return {
        fetched: tallies.reduce((sum, { fetchedBytes }) => sum + fetchedBytes, 0),
        high: tallies.reduce((sum, { high }) => sum + high, 0),
        mass: new Set(tallies.map(({ mass }) => mass)),
      };
    };
    const nothing = replayed(0);
    const executions = ITERATIONS * layers * 2;
    assert.equal(nothing.fetched, executions * SIZES.upperBytes + nothing.high * SIZES.lowerBytes);
    assert.ok(nothing.high > 0 && nothing.high < executions);
    assert.deepEqual([...nothing.mass], [1]);
    assert.ok(replayed(1e6).fetched < nothing.fetched);
  });

  it('needs routers whose scores follow from what the experts read', async () => {
    const source = await openModelSource(DEMO);
    assert.equal((await openRouters(source))?.layers.length, 8);
    const layersWith = (change: object): typeof source.shape.layers =>
      source.shape.layers.map((layer) => ({ ...layer, ...change }));
    const [first] = source.shape.layers;
    for (const change of [{ routerNorm: true }, { routedNorm: true }, { routed: { ...first?.routed, bias: true } }]) {
      const shape = { ...source.shape, layers: layersWith(change) };
      const dense = source.dense.bind(source);
      assert.equal(await openRouters({ ...source, shape, dense }), null);
    }
  });
});
