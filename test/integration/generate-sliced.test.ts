/** Answers with sliced experts in one process: the readings that the quality asks for, to the bit. */
import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ForcedPasses } from '../../bench/slices/forced-passes.js';
import { VARIANTS } from '../../bench/slices/measure-slices.js';
import { loadVariant, readExperts } from '../../bench/slices/variant-experts.js';
import { realDevices } from '../../engine/environment/node-environment.js';
import { LocalEngine, type LocalEngineOptions } from '../../engine/generation/local-engine.js';
import { createLocalRunner } from '../../engine/generation/local-runner.js';
import { loadDenseWeights } from '../../engine/loading/load-weights.js';
import { openDevice, openHandles, type Model } from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { openSlices } from '../../packs/slices/open-slices.js';
import { SLICES_FILE } from '../../packs/format/pack-layout.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { isCritical } from '../../shared/decisions/slices/critical-executions.js';
import { type MeasuredTheta } from '../../shared/decisions/slices/plan-readings.js';
import { readQuality } from '../../shared/settings/quality.js';
import type { SliceReading } from '../../shared/model/tensor-source.js';
import { slice } from '../unit/sliced-pack.js';
import { pack, refusal } from '../unit/tiny-pack.js';
import { logitBits } from './generate-resident-model.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const CPU = { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 } as const;
const PROMPT = Array.from({ length: 40 }, (_, n) => (n * 37 + 11) % 300);
const FURTHER = [5, 17, 290, 0, 123];
const WHOLE_PROMPT = 64;
/** A threshold between the lowest and the highest weight of a router that chooses two experts. */
const THETA = 0.75;

describe('sliced experts in one process', function () {
  this.timeout(120_000);
  let root: string;
  /** Has slices (8,4), and no measured threshold. */
  let sliced: string;

  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'odmoe-sliced-'));
    sliced = join(root, 'sliced');
    await pack(DEMO, sliced, { tools: NATIVE_SLICING_TOOLS });
    await cp(sliced, join(root, 'lossless'), { recursive: true });
    await slice(sliced);
  });

  after(async () => rm(root, { recursive: true, force: true }));

  const open = async (
    directory: string,
    quality: string,
    change: Partial<LocalEngineOptions> = {},
  ): Promise<LocalEngine> => {
    const read = readQuality(quality);
    return LocalEngine.open(directory, {
      device: CPU,
      emulation: null,
      resident: null,
      shadow: null,
      quality: 'quality' in read ? read.quality : assert.fail(read.problem),
      prefillRows: WHOLE_PROMPT,
      chooseSeed: () => 0,
      environment: realDevices(),
      onProgress: null,
      ...change,
    });
  };

  const bitsFor = async (directory: string, quality: string, prefillRows = WHOLE_PROMPT): Promise<Uint32Array[]> => {
    const engine = await open(directory, quality, { prefillRows });
    try {
      assert.equal(engine.arithmetic, quality);
      return await logitBits(engine, PROMPT, FURTHER, prefillRows);
    } finally {
      engine.dispose();
    }
  };

  const withModel = async <T>(use: (model: Model) => Promise<T>): Promise<T> => {
    const source = await openModelSource(sliced);
    const device = openDevice(CPU);
    const model = device.createModel(source.shape);
    try {
      await loadDenseWeights(model, source, 'shipped');
      return await use(model);
    } finally {
      model.dispose();
      device.dispose();
    }
  };

  /** By passes that run as a whole in the native core, with experts that are the model's own. */
  const residentBits = async (reading: SliceReading): Promise<Uint32Array[]> =>
    withModel(async (model) => {
      const slices = await openSlices(sliced);
      const { expertLayers, experts } = model.shape;
      for (let layer = 0; layer < expertLayers; layer += 1) {
        for (let expert = 0; expert < experts; expert += 1) {
          await model.loadResidentExpert(layer, expert, slices.expert(layer, expert), slices.split, reading);
        }
      }
      const createRunner = (rows: number): ReturnType<typeof createLocalRunner> =>
        createLocalRunner(model, model.shape, rows);
      return logitBits({ createRunner }, PROMPT, FURTHER, WHOLE_PROMPT);
    });

  const withTheta = async (name: string, theta: readonly MeasuredTheta[]): Promise<string> => {
    const directory = join(root, name);
    await cp(sliced, directory, { recursive: true });
    const path = join(directory, SLICES_FILE);
    const manifest = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
    await writeFile(path, JSON.stringify({ ...manifest, theta }));
    return directory;
  };

  for (const [quality, reading] of [
    ['sliced(8,4)', 'both'],
    ['sliced(8,4,low)', 'upperCentred'],
  ] as const) {
    it(`give the logits of experts that all read by ${reading}, for any size of a prompt chunk: ${quality}`, async () => {
      const expected = await residentBits(reading);
      assert.deepEqual(await bitsFor(sliced, quality), expected);
      assert.deepEqual(await bitsFor(sliced, quality, 7), expected);
    });
  }

  it('give other logits for each reading, and none of them are the exact ones', async () => {
    const found = [await bitsFor(sliced, 'sliced(8,4)'), await bitsFor(sliced, 'sliced(8,4,low)')];
    const exact = await bitsFor(sliced, 'exact');
    assert.notDeepEqual(found[0], found[1]);
    for (const bits of found) assert.notDeepEqual(bits, exact);
  });

  it('read both slices for exactly the critical executions', async () => {
    const directory = await withTheta('measured', [
      { critical: 0.05, theta: 1 },
      { critical: 0.3, theta: THETA },
      { critical: 0.9, theta: 0 },
    ]);
    const tokenIds = [...PROMPT, 0];
    const expected = await withModel(async (model) => {
      const passes = new ForcedPasses(model, [{ tokenIds, answerFrom: 1 }]);
      const source = await openModelSource(DEMO);
      const matrices = await readExperts(source);
      const device = openDevice(CPU);
      const [high, low] = await Promise.all(
        ['asym8', 'centred(8,4)'].map(async (name) => {
          const variant = VARIANTS.find((one) => one.name === name) ?? assert.fail(name);
          return loadVariant(device, source, matrices, variant, passes.maxRows);
        }),
      );
      if (high === undefined || low === undefined) assert.fail();
      const found: Float32Array[] = [];
      const read = { high: 0, all: 0 };
      const choose = (weights: Float32Array): boolean[] => {
        const chosen = Array.from(weights, (weight) => isCritical(weight, THETA));
        read.high += chosen.filter((isHigh) => isHigh).length;
        read.all += chosen.length;
        return chosen;
      };
      await passes.run(
        { high, mixed: { low, choose } },
        { predicted: (_record, _index, logits) => found.push(logits) },
      );
      for (const disposable of [high, low, device]) disposable.dispose();
      assert.ok(read.high > 0 && read.high < read.all, `${read.high} of ${read.all} executions are critical`);
      return found;
    });
    const engine = await open(directory, 'sliced(8,4,critical=0.3)', { prefillRows: 16 });
    try {
      assert.equal(engine.arithmetic, 'sliced(8,4,critical=0.3)');
      const runner = engine.createRunner();
      const found: Float32Array[] = [];
      found.push(await runner.prefill(PROMPT, (_position, logits) => found.push(Float32Array.from(logits))));
      await runner.end();
      assert.deepEqual(found, expected);
    } finally {
      engine.dispose();
    }
    assert.deepEqual(await bitsFor(directory, 'sliced(8,4,critical=0.9)'), await bitsFor(sliced, 'sliced(8,4)'));
  });

  it('come from the slices alone, and low reads no byte of a lower slice', async () => {
    const engine = await open(sliced, 'sliced(8,4,low)');
    const both = await open(sliced, 'sliced(8,4)');
    try {
      const [low, high] = [engine, both].map((one) =>
        one.residentWeights().kinds.find(({ format }) => format === 'sliced84'),
      );
      // A group of 32 weights has 16 bytes of codes in each slice, and 3 bytes beside them in the upper one.
      assert.ok(low !== undefined && high !== undefined);
      assert.equal(low.matrices, high.matrices);
      assert.equal(low.bytes * 35, high.bytes * 19);
    } finally {
      engine.dispose();
      both.dispose();
    }
  });

  it('are refused with words that say what to do, and nothing stays open', async () => {
    const high = 'sliced(8,4)';
    const opened = openHandles();
    const refused = async (opening: Promise<LocalEngine>, code: ErrorCode, message: RegExp): Promise<void> =>
      assert.rejects(opening, refusal(code, message));
    await refused(open(DEMO, high), 'USAGE', /is a checkpoint, .*"odmoe pack .* PACK_DIR --slices 8,4"/);
    await refused(open(join(root, 'lossless'), high), 'PACK_INCOMPLETE', /has no slices.*"odmoe pack .* --slices 8,4"/);
    await refused(open(sliced, 'sliced(6,3)'), 'USAGE', /has slices \(8,4\), and sliced\(6,3\) needs \(6,3\)/);
    await refused(open(sliced, 'sliced(8,4,critical=0.3)'), 'USAGE', /no threshold .* give sliced\(8,4\) or/);
    await refused(open(sliced, 'sliced(8,4,cached=1GB,miss=0.05)'), 'USAGE', /no threshold .* give sliced\(8,4\) or/);
    await refused(open(sliced, high, { shadow: 'int8' }), 'USAGE', /leave out --shadow, or the quality$/);
    const emulation = { profilePath: '/none', expertStorage: 'fp32' } as const;
    await refused(open(sliced, high, { emulation }), 'USAGE', /leave out --profile, or the quality$/);
    const device = { ...CPU, arithmetic: 'fast' } as const;
    await refused(open(sliced, high, { device }), 'USAGE', /leave out --arithmetic fast, or the quality$/);
    assert.deepEqual(openHandles(), opened);
  });
});
