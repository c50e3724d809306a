/** A worker that computes with slices: real slots and files, and the bits that one process computes with the same slices. */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FROM_STORAGE, openDevice, PLAIN_LOADER, type Device, type ExpertSlots } from '../../native/index.js';
import { SLICES_FILE } from '../../packs/format/pack-layout.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { openSlices, type Slices } from '../../packs/slices/open-slices.js';
import { sliceExtents } from '../../packs/slices/slice-extents.js';
import { serializeSlices } from '../../packs/slices/slices-manifest.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { readQuality, type Quality } from '../../shared/settings/quality.js';
import type { RunningNode } from '../../engine/daemon/running-node.js';
import { slice } from '../unit/sliced-pack.js';
import { pack, refusal } from '../unit/tiny-pack.js';
import { waitUntil } from './harness/wait-until.js';
import { hiddenStates, MAX_ROWS, WorkerSetting } from './worker-test-setting.js';
import type { WorkerTestClient } from './worker-test-client.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const ROWS = 3;
const ALL = [0, 1, 2];
const CRITICAL = 'sliced(8,4,critical=0.3)';

const qualityOf = (text: string): Quality => {
  const read = readQuality(text);
  return 'quality' in read ? read.quality : assert.fail(read.problem);
};

/** Runs sliced experts in one process, as `odmoe generate --quality` does. */
class ReferenceSlices {
  private readonly device: Device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
  private readonly slots: ExpertSlots;

  constructor(
    { shape }: Pack,
    private readonly slices: Slices,
  ) {
    const { hiddenSize, expert: glu } = shape;
    this.slots = this.device.createExpertSlots({ hiddenSize, glu, format: slices.split }, 1, MAX_ROWS, PLAIN_LOADER);
    this.slots.takeLower(0);
  }

  async run(layer: number, expert: number, hidden: Uint8Array, upper: readonly number[]): Promise<Buffer> {
    await this.slots.load(0, this.slots.register(this.slices.expert(layer, expert)), FROM_STORAGE);
    const output = Buffer.alloc(hidden.length);
    const readings = ALL.map((row) => (upper.includes(row) ? 'upperCentred' : 'both'));
    await this.slots.execute(0, ROWS, hidden, output, readings);
    return output;
  }

  close(): void {
    this.slots.dispose();
    this.device.dispose();
  }
}

describe('worker daemon: sliced experts', function () {
  this.timeout(120_000);
  const setting = new WorkerSetting();
  let root: string;
  let sliced: string;
  let opened: Pack;
  let slices: Slices;
  let reference: ReferenceSlices;

  before(async () => {
    root = mkdtempSync(join(tmpdir(), 'odmoe-worker-sliced-'));
    sliced = join(root, 'sliced');
    await pack(DEMO, sliced, { tools: NATIVE_SLICING_TOOLS });
    cpSync(sliced, join(root, 'lossless'), { recursive: true });
    await slice(sliced);
    slices = await openSlices(sliced);
    const theta = [{ critical: 0.3, theta: 0.75 }];
    writeFileSync(join(sliced, SLICES_FILE), serializeSlices({ ...slices.manifest, theta }));
    slices = await openSlices(sliced);
    opened = await openPack(sliced);
    reference = new ReferenceSlices(opened, slices);
  });

  after(() => {
    reference.close();
    rmSync(root, { recursive: true, force: true });
  });

  const start = (quality: string, directory = sliced, slots = 2): Promise<RunningNode> =>
    setting.start({ slots, main: { quality: qualityOf(quality) } }, directory);

  const connect = async (node: RunningNode): Promise<WorkerTestClient> => {
    const main = await setting.connect(node);
    const { expertLayers: layers, experts, expertsPerToken } = opened.shape;
    const workers = [{ id: 'worker', address: 'worker:1', slots: 2 }];
    const groups = [{ workerIds: ['worker'] }];
    main.place({ epoch: 1, layers, experts, expertsPerToken, homes: 0, spread: false, workers, groups });
    return main;
  };

  const request = (
    layer: number,
    expert: number,
    position: number,
    upper: number[] = [],
  ): Parameters<WorkerTestClient['result']>[0] & { hidden: Uint8Array } => {
    const { hiddenSize } = opened.shape;
    return { layer, expert, position, upper, hiddenSize, hidden: hiddenStates(ROWS, hiddenSize, position) };
  };

  /** Runs one expert with these readings, and compares the bits with the reference's. */
  const check = async (main: WorkerTestClient, ...where: Parameters<typeof request>): Promise<void> => {
    const asked = request(...where);
    const result = await main.result(asked);
    const wanted = await reference.run(where[0], where[1], asked.hidden, where[3] ?? []);
    assert.deepEqual(Buffer.from(result.output), wanted, `expert ${where[1]} of layer ${where[0]}`);
  };

  const sliceBytes = (part: 'upper' | 'lower', layer: number, expert: number): number => {
    const index = layer * opened.shape.experts + expert;
    const matrices = ['gate', 'up', 'down'] as const;
    const entry = slices.manifest.experts[index] ?? assert.fail();
    return matrices.reduce((sum, matrix) => sum + entry[matrix][part].stored_bytes, 0);
  };

  /** Changes one byte of a slice in a copy of the pack. */
  const damaged = (name: string, part: 'upper' | 'lower', layer: number, expert: number): string => {
    const directory = join(root, name);
    cpSync(sliced, directory, { recursive: true });
    const extents = sliceExtents(slices.manifest, part);
    const { file, offsetBytes } = extents[layer * opened.shape.experts + expert] ?? assert.fail();
    const bytes = readFileSync(join(directory, file));
    bytes[offsetBytes + 5] = (bytes[offsetBytes + 5] ?? 0) ^ 0x40;
    writeFileSync(join(directory, file), bytes);
    return directory;
  };

  it('computes all of its experts with both slices, as one process does', async () => {
    const main = await connect(await start('sliced(8,4)'));
    for (let layer = 0; layer < opened.shape.expertLayers; layer += 1) {
      for (const expert of [0, 3]) await check(main, layer, expert, layer);
    }
    const status = await main.status(
      'all loads are reported',
      ({ executions }) => executions === 2 * opened.shape.expertLayers,
    );
    const bytes = sliceBytes('upper', 0, 0) + sliceBytes('lower', 0, 0);
    assert.ok(status.storageReadBytes >= status.loads * bytes && status.storageReadBytes < 2 * status.loads * bytes);
  });

  it('reads no lower slice where all rows read upper ones alone, with files of upper slices alone', async () => {
    const directory = join(root, 'upper-alone');
    cpSync(sliced, directory, { recursive: true });
    for (const { name } of slices.manifest.files) if (name.includes('lower')) rmSync(join(directory, name));
    const main = await connect(await start('sliced(8,4,low)', directory));
    for (let layer = 0; layer < opened.shape.expertLayers; layer += 1) await check(main, layer, 1, layer, ALL);
    const status = await main.status('the loads are reported', ({ loads }) => loads === opened.shape.expertLayers);
    const upperBytes = sliceBytes('upper', 0, 1);
    assert.ok(status.storageReadBytes >= status.loads * upperBytes);
    assert.ok(status.storageReadBytes < status.loads * (upperBytes + sliceBytes('lower', 0, 1)));
  });

  it('adds the lower slice where a row reads it, and mixes readings of one expert row by row', async () => {
    const main = await connect(await start(CRITICAL));
    let position = 0;
    for (const upper of [ALL, [], [1], [0, 2], [2]]) await check(main, 0, 2, position++, upper);
    const last = request(1, 4, position, []);
    const mixed = [main.result({ ...last, last: false }), main.result({ ...last, upper: ALL })];
    const [both, upper] = await Promise.all(mixed);
    assert.deepEqual(Buffer.from(both?.output ?? []), await reference.run(1, 4, last.hidden, []));
    assert.deepEqual(Buffer.from(upper?.output ?? []), await reference.run(1, 4, last.hidden, ALL));
    assert.notDeepEqual(both?.output, upper?.output);
  });

  it('has both slices of a critical expert before main asks for it, and the upper ones alone of the others', async () => {
    const main = await connect(await start(CRITICAL));
    main.predict({ layer: 0, experts: [3, 4], critical: [4] });
    const wanted = sliceBytes('upper', 0, 3) + sliceBytes('upper', 0, 4) + sliceBytes('lower', 0, 4);
    await main.status('the slices are loaded', ({ storageReadBytes }) => storageReadBytes >= wanted);
    const critical = await main.result(request(0, 4, 0));
    assert.equal(critical.wasLoaded, true);
    const other = await main.result(request(0, 3, 0));
    assert.equal(other.wasLoaded, false, 'its lower slice comes when a row reads it');
  });

  it('fails the executes that read a damaged lower slice, by its words, and goes on with the upper one', async () => {
    const main = await connect(await start(CRITICAL, damaged('lower', 'lower', 0, 5)));
    const error = await main.error(request(0, 5, 0));
    assert.equal(error.code, 'PACK_CORRUPT');
    assert.match(error.message, /^The lower slices of expert 5 of layer 0 could not be loaded: /);
    await check(main, 0, 5, 1, ALL);
    await check(main, 0, 6, 2);
    const status = await main.status('the damage is counted', ({ damagedExperts }) => damagedExperts === 1);
    assert.equal(status.damagedExperts, 1);
  });

  it('fails the executes of an expert whose upper slice is damaged', async () => {
    const main = await connect(await start('sliced(8,4,low)', damaged('upper', 'upper', 0, 5)));
    const error = await main.error(request(0, 5, 0, ALL));
    assert.equal(error.code, 'PACK_CORRUPT');
    assert.match(error.message, /^Expert 5 of layer 0 could not be loaded: /);
    await check(main, 0, 6, 1, ALL);
  });

  it('refuses rows that read what it does not have, and serves the next ones', async () => {
    const low = await connect(await start('sliced(8,4,low)'));
    const error = await low.error(request(0, 0, 0, [0, 1]));
    assert.equal(error.code, 'PROTOCOL_VIOLATION');
    assert.match(error.message, /lower slices/);
    await check(low, 0, 0, 0, ALL);
    const exact = await setting.connectMain(await setting.start());
    const { hiddenSize } = setting.shape;
    const refused = await exact.error({
      layer: 0,
      expert: 0,
      upper: [0],
      hiddenSize,
      hidden: hiddenStates(1, hiddenSize),
    });
    assert.equal(refused.code, 'PROTOCOL_VIOLATION');
    assert.match(refused.message, /computes experts exactly/);
  });

  it('names its quality and its slices to main', async () => {
    const main = await setting.connect(await start('sliced(8,4,low)'));
    assert.deepEqual([main.own.quality, main.own.slicesDigest], ['sliced(8,4,low)', slices.digest]);
  });

  it('does not start on a pack without the slices, and says how to make them', async () => {
    await assert.rejects(
      start('sliced(8,4)', join(root, 'lossless')),
      refusal('PACK_INCOMPLETE', /has no slices.*odmoe pack .* --slices 8,4/),
    );
    await assert.rejects(start('sliced(6,3)'), refusal('USAGE', /has slices \(8,4\).*--slices 6,3/));
    await assert.rejects(start('sliced(8,4,critical=0.6)'), (thrown: unknown) => {
      assert.ok(thrown instanceof OdmoeError);
      assert.match(thrown.message, /theta/);
      return true;
    });
  });

  it('closes nothing too early: a worker stops while the lower slice of an expert loads', async () => {
    const node = await start(CRITICAL);
    const main = await connect(node);
    main.predict({ layer: 0, experts: [1, 2], critical: [1, 2] });
    await waitUntil('the worker has taken the prediction', () => (node.openCounts()['expectations'] ?? 0) > 0);
    await node.stop();
  });
});
