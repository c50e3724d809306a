/** Answers whose precision and routing follow a logical cache, in one process. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLocalRunner, type SequenceExperts } from '../../engine/generation/local-runner.js';
import { SlicedExperts } from '../../engine/generation/sliced-experts.js';
import { loadDenseWeights } from '../../engine/loading/load-weights.js';
import { decisionRules, openForQuality, type RuledSlices } from '../../engine/loading/open-for-quality.js';
import { openDevice, type Model, type RouterChoice } from '../../native/index.js';
import { SLICES_FILE } from '../../packs/format/pack-layout.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import type { RouterScores } from '../../shared/decisions/slices/choose-experts.js';
import { LogicalSequence, type SlicedExecution } from '../../shared/decisions/slices/logical-sequence.js';
import { outputWeights } from '../../shared/decisions/slices/output-weights.js';
import { planReadings } from '../../shared/decisions/slices/plan-readings.js';
import type { DecidedRows, DecisionRules } from '../../shared/decisions/slices/sequence-decisions.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { USUAL_RULES, type LogicalRules } from '../../shared/settings/logical-rules.js';
import { readQuality } from '../../shared/settings/quality.js';
import { slice } from '../unit/sliced-pack.js';
import { pack } from '../unit/tiny-pack.js';
import { logitBits } from './generate-resident-model.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const CPU = { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 } as const;
const PROMPT = Array.from({ length: 40 }, (_, n) => (n * 37 + 11) % 300);
/** More than the decode steps that a budget does not count. */
const FURTHER = Array.from({ length: 30 }, (_, n) => (n * 53 + 5) % 300);
const FREE_STEPS = 10;
/** A threshold between the lowest and the highest weight of a router that chooses two experts. */
const THETA = 0.75;

interface SlicedModel {
  readonly model: Model;
  readonly experts: SlicedExperts;
  readonly sliced: RuledSlices;
  readonly rules: DecisionRules;
}

describe('a logical cache in one process', function () {
  this.timeout(120_000);
  let root: string;
  let directory: string;

  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'odmoe-logical-'));
    directory = join(root, 'pack');
    await pack(DEMO, directory, { tools: NATIVE_SLICING_TOOLS });
    await slice(directory);
    const path = join(directory, SLICES_FILE);
    const manifest = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
    const theta = [{ critical: 0.3, theta: THETA }];
    await writeFile(path, JSON.stringify({ ...manifest, theta }));
  });

  after(async () => rm(root, { recursive: true, force: true }));

  const withModel = async <T>(text: string, use: (opened: SlicedModel) => Promise<T>): Promise<T> => {
    const read = readQuality(text);
    const { source, sliced } = await openForQuality(directory, 'quality' in read ? read.quality : assert.fail());
    if (sliced === null) assert.fail('the quality is sliced');
    const device = openDevice(CPU);
    const model = device.createModel(source.shape);
    try {
      await loadDenseWeights(model, source, 'shipped');
      const experts = await SlicedExperts.load(device, source.shape, sliced, PROMPT.length, null);
      const rules = decisionRules(sliced, source.shape) ?? assert.fail('the quality has a logical cache');
      const result = await use({ model, experts, sliced, rules });
      experts.dispose();
      return result;
    } finally {
      model.dispose();
      device.dispose();
    }
  };

  const bitsWith = async (
    { model }: SlicedModel,
    experts: () => SequenceExperts,
    prefillRows = PROMPT.length,
  ): Promise<Uint32Array[]> =>
    logitBits(
      { createRunner: (rows) => createLocalRunner(model, model.shape, rows, null, experts()) },
      PROMPT,
      FURTHER,
      prefillRows,
    );

  const bitsOf = async (text: string, prefillRows = PROMPT.length): Promise<Uint32Array[]> =>
    withModel(text, async (opened) => bitsWith(opened, () => opened.experts.forSequence(), prefillRows));

  /** All experts of the sliced model, whose executions the caller decides by position. */
  const decidedBy = (
    { experts }: SlicedModel,
    decide: (position: number, layer: number, choice: RouterChoice) => DecidedRows,
  ): SequenceExperts => ({
    needsAllScores: true,
    promptBegins: () => undefined,
    forward: async (pass, { position, count }, onRouter) =>
      experts.forward(pass, count, onRouter, (layer, choice) => decide(position, layer, choice)),
  });

  const byThreshold = (opened: SlicedModel, isLow: (position: number) => boolean): SequenceExperts =>
    decidedBy(opened, (position, _layer, { experts, weights }) => {
      const { expertsPerToken } = opened.model.shape;
      const isPrompt = position < PROMPT.length;
      const rule = isPrompt
        ? ({ kind: 'high' } as const)
        : isLow(position)
          ? ({ kind: 'low' } as const)
          : ({ kind: 'critical', theta: THETA } as const);
      return { experts, weights, readings: planReadings(rule, weights, expertsPerToken) };
    });

  /** The router's scores of each position and layer, as a run has them, and the logits of the run. */
  const scoresOf = async (opened: SlicedModel): Promise<{ bits: Uint32Array[]; scores: RouterScores[][] }> => {
    const scores: RouterScores[][] = [];
    const { experts: count } = opened.model.shape;
    const bits = await bitsWith(opened, () => {
      const sequence = opened.experts.forSequence();
      return {
        needsAllScores: sequence.needsAllScores,
        promptBegins: (tokens) => sequence.promptBegins(tokens),
        forward: async (pass, rows) =>
          sequence.forward(pass, rows, (layer, { logits, scores: all }) => {
            if (logits === undefined || all === undefined) assert.fail('the router answers all scores');
            for (let row = 0; row < rows.count; row += 1) {
              const ofRow = (values: Float32Array): Float32Array => values.slice(row * count, (row + 1) * count);
              (scores[rows.position + row] ??= [])[layer] = { logits: ofRow(logits), scores: ofRow(all) };
            }
          }),
      };
    });
    return { bits, scores };
  };

  it('reads critical executions whole while cache and budget have room', async () => {
    const text = 'sliced(8,4,cached=1GB,miss=0.999999)';
    const expected = await withModel(text, async (opened) => bitsWith(opened, () => byThreshold(opened, () => false)));
    assert.deepEqual(await bitsOf(text), expected);
  });

  it('reads upper slices alone once a budget counts that has no room', async () => {
    const text = 'sliced(8,4,cached=1,miss=0.000001)';
    const isLow = (position: number): boolean => position >= PROMPT.length + FREE_STEPS;
    const expected = await withModel(text, async (opened) => bitsWith(opened, () => byThreshold(opened, isLow)));
    assert.deepEqual(await bitsOf(text), expected);
    assert.notDeepEqual(expected, await bitsOf('sliced(8,4,cached=1GB,miss=0.999999)'));
  });

  /** Runs the model, and again with the decisions of a pure replay of its routers' scores. */
  const assertReplayed = async (opened: SlicedModel): Promise<{ bits: Uint32Array[]; replayed: Replayed }> => {
    const { bits, scores } = await scoresOf(opened);
    const replayed = replay(opened.rules, scores);
    const again = await bitsWith(opened, () =>
      decidedBy(opened, (position, layer, choice) => {
        const run = replayed.executions[position - PROMPT.length]?.[layer];
        if (run === undefined) return { ...choice, readings: Array.from(choice.experts, () => 'both') };
        const experts = run.map(({ expert }) => expert);
        const router = opened.rules.routers[layer] ?? assert.fail();
        return {
          experts: Int32Array.from(experts),
          weights: outputWeights(router, scores[position]?.[layer]?.scores ?? [], experts),
          readings: run.map(({ precision }) => (precision === 'high' ? 'both' : 'upperCentred')),
        };
      }),
    );
    assert.deepEqual(again, bits);
    return { bits, replayed };
  };

  it('decides what a pure replay of the routers scores decides, and pulls levers', async () => {
    await withModel('sliced(8,4,cached=2MB,miss=0.05)', async (opened) => {
      const { levers, otherExperts } = (await assertReplayed(opened)).replayed;
      assert.ok(levers.size > 2, [...levers].join('; '));
      assert.ok(otherExperts > 0, 'no expert was chosen in place of the routers own choice');
    });
  });

  it('follows the rules that the quality names', async () => {
    const rules: [string, LogicalRules][] = [
      ['', USUAL_RULES],
      [',dbsc=background', { ...USUAL_RULES, lowerFetch: 'background' }],
      [',dbsc=never', { ...USUAL_RULES, lowerFetch: 'never' }],
      [',routing=cumulative(0.9,1)', { ...USUAL_RULES, routing: { kind: 'cumulative', mass: 0.9, kept: 1 } }],
      [',routing=cache-prior(0.4,1)', { ...USUAL_RULES, routing: { kind: 'cache-prior', lambda: 0.4, kept: 1 } }],
    ];
    const answers = new Set<string>();
    for (const [text, { lowerFetch, routing }] of rules) {
      await withModel(`sliced(8,4,cached=3MB,miss=0.9${text})`, async (opened) => {
        const { sequence } = opened.rules;
        assert.deepEqual([sequence.lowerFetch, sequence.routing], [lowerFetch, routing]);
        answers.add((await assertReplayed(opened)).bits.join());
      });
    }
    assert.equal(answers.size, rules.length, 'each rule gives another answer');
  });

  it('gives the same bits for any division of the prompt, and each time', async () => {
    const text = 'sliced(8,4,cached=2MB,miss=0.05)';
    const expected = await bitsOf(text);
    for (const prefillRows of [PROMPT.length, 7, 1]) assert.deepEqual(await bitsOf(text, prefillRows), expected);
  });
});

interface Replayed {
  /** By step of the answer, layer and rank. */
  readonly executions: SlicedExecution[][][];
  readonly levers: Set<string>;
  /** Number of executions by experts that the router did not choose. */
  readonly otherExperts: number;
}

/** Runs the scores of prompt and answer through the logical cache alone. */
function replay({ sequence: rules }: DecisionRules, scores: readonly (readonly RouterScores[])[]): Replayed {
  const sequence = LogicalSequence.begin(rules);
  for (const layers of scores.slice(0, PROMPT.length)) {
    layers.forEach((router, layer) => sequence.takePrompt(layer, router));
  }
  sequence.endPrompt();
  const levers = new Set<string>();
  let otherExperts = 0;
  const executions = scores.slice(PROMPT.length).map((layers) => {
    const step = layers.map((router, layer) => {
      const run = sequence.runLayer(layer, router);
      const best = [...router.scores].sort((left, right) => right - left).slice(0, run.length);
      otherExperts += run.filter(({ expert }) => !best.includes(router.scores[expert] ?? NaN)).length;
      return run;
    });
    sequence.endStep();
    levers.add(sequence.report?.lever ?? '');
    return step;
  });
  return { executions, levers, otherExperts };
}
