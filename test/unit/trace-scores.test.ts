/** Traces of version 2, recorded from a model: the scores of all experts, and their replay through a logical cache. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { recordTraceDocument } from '../../bench/trace/record-trace.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { chooseExperts } from '../../shared/decisions/slices/choose-experts.js';
import { routersOf } from '../../shared/decisions/slices/output-weights.js';
import type { RouterShape } from '../../shared/model/model-shape.js';
import { recordedScores } from '../../simulator/slices/recorded-scores.js';
import { replayScores, thetaOfPrompt } from '../../simulator/slices/replay-scores.js';
import { parseTrace, type TraceDocument } from '../../simulator/trace/trace-file.js';
import { familyFixtures } from '../integration/harness/test-models.js';

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

  it('is of any model whose routers score all experts, with what they choose by', async () => {
    const versions = new Map<string, number>();
    const choices = new Map<string, string[]>();
    for (const name of familyFixtures()) {
      const { router, recorded } = await recordFixture(join(packageRoot(), 'test', name));
      versions.set(name, recorded.version);
      choices.set(name, Object.keys(recorded.router_choice ?? {}));
      if (recorded.version === 1) continue;
      assert.equal(recorded.router_score, router?.score);
      const { count, different } = compareChoices(recorded);
      // Scores are rounded to FP16, so experts that are nearly equal may change places.
      assert.ok(different <= Math.max(2, 0.02 * count), `${name}: ${different} of ${count} choices differ`);
      if (recorded.router_choice === undefined) continue;
      const other = compareChoices({ ...recorded, router_choice: undefined });
      assert.ok(other.different > 0.1 * count, `${name}: the scores alone make ${other.different} of ${count} choices`);
    }
    const without = [...versions].filter(([, version]) => version === 1);
    // DeepSeek-V4's first layers choose by the token, and Phi-MoE's routers choose in turns.
    assert.deepEqual(without, [
      ['fixtures/deepseekv4', 1],
      ['fixtures/phimoe', 1],
    ]);
    assert.deepEqual(choices.get('fixtures/deepseekv3'), ['bias', 'groups', 'groups_kept', 'group_score']);
    assert.deepEqual(choices.get('fixtures/deepseekv2-yarn'), ['groups', 'groups_kept', 'group_score']);
    assert.deepEqual(choices.get('fixtures/minimaxm2'), ['bias', 'groups', 'groups_kept', 'group_score']);
    for (const name of ['fixtures/gptoss', 'fixtures/gemma4moe', 'fixtures/mixtral'])
      assert.deepEqual(choices.get(name), []);
  });

  it('replays the own choice alone of routers that choose by other numbers than their scores', async () => {
    const { recorded } = await recordFixture(join(packageRoot(), 'test', 'fixtures', 'minimaxm2'));
    const { layers, experts, experts_per_token: expertsPerToken } = recorded;
    const scores = recordedScores(recorded, 0);
    const rules = {
      expertsPerToken,
      routing: { kind: 'top-k' },
      lowerFetch: 'wait',
      theta: Infinity,
      missTarget: null,
      start: 'empty',
      seed: 1,
      cache: { ...SIZES, layers, experts, capacityBytes: 0 },
    } as const;
    const { steps } = replayScores(scores, rules);
    assert.deepEqual([steps.length, steps[0]?.length], [4, layers]);
    assert.deepEqual(new Set(steps.flat().map(({ mass }) => mass)), new Set([1]));
    for (const given of [{ routing: { kind: 'cache-prior', lambda: 0.1, kept: 1 } } as const, { missTarget: 0.05 }]) {
      assert.throws(() => replayScores(scores, { ...rules, ...given }), { code: 'USAGE', message: /other numbers/ });
    }
  });
});

/** A trace of a small model of a family. `router`: of its first layer with experts. */
async function recordFixture(modelPath: string): Promise<{ router: RouterShape | undefined; recorded: TraceDocument }> {
  const { shape } = await openModelSource(modelPath);
  const prompts = [Array.from({ length: 12 }, (_, index) => (index * 7 + 1) % shape.vocabSize)];
  const beside = { quantize: 'projections', alignment: { token: 1, keyValue: 1 }, threads: 1, scores: true } as const;
  const recorded = await recordTraceDocument(
    { modelPath, prompts, iterations: 4, precision: 'int8', ...beside },
    () => undefined,
  );
  return { router: routersOf(shape)[0], recorded: parseTrace(JSON.stringify(recorded), 'trace.json') };
}

/** Compares the choices that follow from the recorded scores with the experts that the model activated. */
function compareChoices(recorded: TraceDocument): { count: number; different: number } {
  const { experts_per_token: count, prompts } = recorded;
  const pairs = recordedScores(recorded, 0).positions.flatMap((layers, position) =>
    layers.map((router, layer) => {
      const chosen = chooseExperts({ kind: 'top-k' }, router, count, { isCached: () => false, meanRange: 0 });
      return [chosen.join(), prompts[0]?.activated[position]?.[layer]?.join()];
    }),
  );
  return { count: pairs.length, different: pairs.filter(([chosen, activated]) => chosen !== activated).length };
}
