/** Workers of sliced experts for the tests of one describe block, and the bits that one process computes with the same slices. */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FROM_STORAGE, openDevice, PLAIN_LOADER, type Device, type ExpertSlots } from '../../native/index.js';
import { type Slice, SLICES_FILE } from '../../packs/format/pack-layout.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { openSlices, type Slices } from '../../packs/slices/open-slices.js';
import { sliceExtents } from '../../packs/slices/slice-extents.js';
import { serializeSlices } from '../../packs/slices/slices-manifest.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { readQuality, type Quality } from '../../shared/settings/quality.js';
import type { RunningNode } from '../../engine/daemon/running-node.js';
import type { Placement } from '../../shared/wire/messages.js';
import { PackServer } from '../../packs/fetching/pack-server.js';
import { servedSlices } from '../../packs/fetching/served-slices.js';
import type { FetchSetting, PackService } from '../unit/fetch-test-pack.js';
import { plainIdentity } from '../unit/plain-identity.js';
import { slice } from '../unit/sliced-pack.js';
import { pack } from '../unit/tiny-pack.js';
import { RUNTIME } from '../wall.js';
import { testSettings, type SettingsChanges } from './harness/test-settings.js';
import { hiddenStates, MAX_ROWS, WorkerSetting } from './worker-test-setting.js';
import type { WorkerTestClient } from './worker-test-client.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const ROWS = 3;
/** All rows of a request. */
export const ALL = [0, 1, 2];
export const CRITICAL = 'sliced(8,4,critical=0.3)';

export const qualityOf = (text: string): Quality => {
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

/** Packs in `root`: `sliced` has slices (8,4) with one measured threshold, `lossless` is the same pack without slices. */
export class SlicedSetting {
  readonly workers = new WorkerSetting();
  root = '';
  private openedPack: Pack | null = null;
  private openedSlices: Slices | null = null;
  private reference: ReferenceSlices | null = null;

  /** Call this in a describe: it registers hooks. */
  constructor() {
    before(async () => {
      this.root = mkdtempSync(join(tmpdir(), 'odmoe-worker-sliced-'));
      await pack(DEMO, this.sliced, { tools: NATIVE_SLICING_TOOLS });
      cpSync(this.sliced, join(this.root, 'lossless'), { recursive: true });
      await slice(this.sliced);
      const { manifest } = await openSlices(this.sliced);
      const theta = [{ critical: 0.3, theta: 0.75 }];
      writeFileSync(join(this.sliced, SLICES_FILE), serializeSlices({ ...manifest, theta }));
      this.openedSlices = await openSlices(this.sliced);
      this.openedPack = await openPack(this.sliced);
      this.reference = new ReferenceSlices(this.openedPack, this.openedSlices);
    });
    after(() => {
      this.reference?.close();
      rmSync(this.root, { recursive: true, force: true });
    });
  }

  get sliced(): string {
    return join(this.root, 'sliced');
  }

  get pack(): Pack {
    return this.openedPack ?? assert.fail('the pack is there only while a test runs');
  }

  get slices(): Slices {
    return this.openedSlices ?? assert.fail('the slices are there only while a test runs');
  }

  /** The service by which main gives the pack and its slices. */
  share(): PackServer {
    return new PackServer(this.pack, RUNTIME, { slices: servedSlices(this.slices, this.pack.shape) });
  }

  /** Starts a main that gives this, as far as workers fetch from it; returns its address. */
  serveMain(fetching: FetchSetting, pack: PackService): Promise<string> {
    const { cluster } = testSettings('worker', '/nowhere');
    const { packDigest } = this.pack;
    const identity = plainIdentity({ id: 'main', role: 'ROLE_MAIN', cluster, packDigest });
    return fetching.serve(pack, { node: { identify: () => identity } });
  }

  start(quality: string, directory = this.sliced, slots = 2, more: SettingsChanges = {}): Promise<RunningNode> {
    return this.workers.start({ slots, main: { quality: qualityOf(quality) }, ...more }, directory);
  }

  get placement(): Placement {
    const { expertLayers: layers, experts, expertsPerToken } = this.pack.shape;
    const workers = [{ id: 'worker', address: 'worker:1', slots: 2 }];
    const groups = [{ workerIds: ['worker'] }];
    return { epoch: 1, layers, experts, expertsPerToken, homes: 0, spread: false, workers, groups };
  }

  async connect(node: RunningNode): Promise<WorkerTestClient> {
    const main = await this.workers.connect(node);
    main.place(this.placement);
    return main;
  }

  request(
    layer: number,
    expert: number,
    position: number,
    upper: number[] = [],
  ): Parameters<WorkerTestClient['result']>[0] {
    const { hiddenSize } = this.pack.shape;
    return { layer, expert, position, upper, hiddenSize, hidden: hiddenStates(ROWS, hiddenSize, position) };
  }

  /** The bits that one process computes. */
  expected(layer: number, expert: number, position: number, upper: readonly number[] = []): Promise<Buffer> {
    const { hidden } = this.request(layer, expert, position);
    return this.reference?.run(layer, expert, hidden, upper) ?? assert.fail('no reference');
  }

  /** Runs one expert with these readings, and compares the bits with the reference's. */
  async check(main: WorkerTestClient, ...where: Parameters<SlicedSetting['request']>): Promise<void> {
    const result = await main.result(this.request(...where));
    const wanted = await this.expected(...where);
    assert.deepEqual(Buffer.from(result.output), wanted, `expert ${where[1]} of layer ${where[0]}`);
  }

  sliceBytes(slice: Slice, layer: number, expert: number): number {
    const entry = this.slices.manifest.experts[layer * this.pack.shape.experts + expert] ?? assert.fail();
    const matrices = ['gate', 'up', 'down'] as const;
    return matrices.reduce((sum, matrix) => sum + entry[matrix][slice].stored_bytes, 0);
  }

  /** A copy of the pack in which one byte of a slice is wrong. */
  damaged(name: string, slice: Slice, layer: number, expert: number): string {
    const directory = join(this.root, name);
    cpSync(this.sliced, directory, { recursive: true });
    this.damage(directory, slice, layer, expert);
    return directory;
  }

  damage(directory: string, slice: Slice, layer: number, expert: number): void {
    const extents = sliceExtents(this.slices.manifest, slice);
    const { file, offsetBytes } = extents[layer * this.pack.shape.experts + expert] ?? assert.fail();
    const bytes = readFileSync(join(directory, file));
    bytes[offsetBytes + 5] = (bytes[offsetBytes + 5] ?? 0) ^ 0x40;
    writeFileSync(join(directory, file), bytes);
  }
}
