/** Thresholds of critical executions: measured when a pack is sliced, and written into slices.json. */
import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SlicedExperts } from '../../engine/generation/sliced-experts.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { openForQuality } from '../../engine/loading/open-for-quality.js';
import { calibrate, type CalibrationResult } from '../../engine/planning/calibrate.js';
import { openDevice, openHandles } from '../../native/index.js';
import { SLICES_FILE } from '../../packs/format/pack-layout.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { renormalizedWeights } from '../../shared/decisions/slices/critical-executions.js';
import {
  expectedRule,
  planReadings,
  measuredThresholds,
  type MeasuredTheta,
} from '../../shared/decisions/slices/plan-readings.js';
import { qualityText, type Quality } from '../../shared/settings/quality.js';
import { refusal } from '../unit/tiny-pack.js';
import { runCalibrationText } from './calibration-passes.js';
import { COMMAND_TIMEOUT_MS, odmoe } from './harness/run-odmoe.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const CPU = { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 } as const;
/** The wanted share of critical executions, and how far an answer may be from it: it is not the text that was measured. */
const SHARE = 0.3;
const SHARE_TOLERANCE = 0.06;

async function measured(
  directory: string,
  budgetBytes = 0,
  signal = new AbortController().signal,
): Promise<{ found: CalibrationResult; layers: number[] }> {
  const layers: number[] = [];
  const source = await openModelSource(directory);
  const found = await calibrate(source, {
    budgetBytes,
    signal,
    onProgress: (done) => layers.push(done),
    withRecall: false,
  });
  return { found, layers };
}

describe('thresholds of critical executions', function () {
  this.timeout(2 * COMMAND_TIMEOUT_MS);
  let root: string;
  let packed: string;
  let output: string;

  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'odmoe-thresholds-'));
    packed = join(root, 'packed');
    output = odmoe('pack', DEMO, packed, '--slices', '8,4');
  });

  after(async () => rm(root, { recursive: true, force: true }));

  const thetaOf = async (directory: string): Promise<unknown> =>
    (JSON.parse(await readFile(join(directory, SLICES_FILE), 'utf8')) as { theta: unknown }).theta;

  it('are measured by odmoe pack, the same from a checkpoint and from a pack', async () => {
    assert.match(output, /measured 19 thresholds of critical executions with 512 tokens of text$/m);
    const theta = await thetaOf(packed);
    const { found, layers } = await measured(DEMO);
    assert.deepEqual(found, { theta, recall: null, from: 'text', tokens: 512 });
    assert.deepEqual((await measured(packed)).found, found);
    assert.deepEqual(theta, await expectedTheta());
    assert.deepEqual(layers, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert.match(
      odmoe('inspect', packed),
      /critical executions, by their weight \(theta\):\n +0\.05 from 0\.\d{3}, 0\.10 /,
    );
  });

  it('make about the wanted share of an answer critical', async () => {
    const quality = { kind: 'critical', split: 'sliced84', share: SHARE } as const;
    const prompt = 'Tell me a story about a fox.';
    const answer = JSON.parse(
      odmoe('generate', packed, prompt, '--quality', qualityText(quality), '--max-tokens', '100', '--json'),
    ) as { prompt_token_ids: number[]; token_ids: number[]; arithmetic: string };
    assert.equal(answer.arithmetic, qualityText(quality));
    const ids = [...answer.prompt_token_ids, ...answer.token_ids];
    const share = await criticalShare(packed, quality, ids);
    assert.ok(Math.abs(share - SHARE) < SHARE_TOLERANCE, `${share} of the executions of ${ids.length} tokens`);
  });

  it('are added to slices that have none, which leaves all other bytes as they are', async () => {
    const directory = join(root, 'added');
    await cp(packed, directory, { recursive: true });
    const path = join(directory, SLICES_FILE);
    const whole = await readFile(path, 'utf8');
    const manifest = JSON.parse(whole) as Record<string, unknown>;
    await writeFile(path, `${JSON.stringify({ ...manifest, theta: null })}\n`);
    const added = JSON.parse(odmoe('pack', directory, directory, '--slices', '8,4', '--json')) as {
      slices: { digest: string };
      measured: unknown;
    };
    assert.equal(await readFile(path, 'utf8'), whole);
    const again = JSON.parse(odmoe('pack', directory, directory, '--slices', '8,4', '--json')) as typeof added;
    assert.equal(again.slices.digest, added.slices.digest);
    assert.equal(again.measured, null);
  });

  it('are measured with random tokens where there is no tokenizer, and not at all where memory is short', async () => {
    const bare = join(root, 'bare');
    await cp(DEMO, bare, { recursive: true });
    for (const name of ['tokenizer.json', 'tokenizer_config.json']) await rm(join(bare, name));
    const { found } = await measured(bare);
    if ('problem' in found) assert.fail(found.problem);
    assert.deepEqual([found.from, found.tokens], ['random tokens', 512]);
    assert.deepEqual((await measured(bare)).found, found);
    const before = openHandles();
    const short = (await measured(DEMO, 1 << 20)).found;
    assert.match('problem' in short ? short.problem : '', /memory/);
    const aborted = AbortSignal.abort();
    await assert.rejects(measured(DEMO, 0, aborted), refusal('CANCELLED', /interrupted/));
    assert.deepEqual(openHandles(), before);
  });
});

/** By whole passes of the native core, with all experts in memory. */
async function expectedTheta(): Promise<MeasuredTheta[]> {
  const source = await openModelSource(DEMO);
  const device = openDevice(CPU);
  const model = device.createModel(source.shape);
  try {
    await loadDenseWeights(model, source, 'shipped');
    await loadResidentExperts(model, source, 'shipped');
    const weights: number[] = [];
    await runCalibrationText(model, DEMO, (choice) => weights.push(...renormalizedWeights(choice.weights, 2)));
    return measuredThresholds(Float32Array.from(weights));
  } finally {
    model.dispose();
    device.dispose();
  }
}

/** The share of executions that read both slices when these tokens run as they did in an answer. */
async function criticalShare(directory: string, quality: Quality, ids: readonly number[]): Promise<number> {
  const { source, sliced } = await openForQuality(directory, quality);
  if (sliced === null) assert.fail('the quality is sliced');
  const device = openDevice(CPU);
  const model = device.createModel(source.shape);
  try {
    await loadDenseWeights(model, source, 'shipped');
    const experts = await SlicedExperts.load(device, source.shape, sliced, ids.length, null);
    const pass = model.createPass(ids.length);
    const sequence = model.createSequence();
    const tokens = Int32Array.from(ids);
    const counts = { both: 0, all: 0 };
    await pass.begin(
      [sequence],
      new Int32Array(ids.length),
      tokens.map((_, row) => row),
      tokens,
    );
    await experts.forward(pass, ids.length, (_layer, { weights }) => {
      const readings = planReadings(expectedRule(sliced.rule), weights, source.shape.expertsPerToken);
      counts.both += readings.filter((reading) => reading === 'both').length;
      counts.all += readings.length;
    });
    for (const used of [sequence, pass, experts]) used.dispose();
    return counts.both / counts.all;
  } finally {
    model.dispose();
    device.dispose();
  }
}
