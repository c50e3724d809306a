import { DISTRUST_EVENT } from '../../main-node/cluster/roster.js';
import { LieWatch } from './lie-watch.js';
import { accessSync, constants, cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openServedPack } from '../../packs/open-served-pack.js';
import type { DevicePace } from '../../engine/emulation/device-pace.js';
import type { Devices } from '../../engine/devices/devices.js';
import type { LayerTime, OperatorTime } from '../../engine/emulation/device-profile.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { OperationLog } from '../timing/operation-log.js';
import { recordingDevice } from '../timing/recording-device.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { NEWEST_PROTOCOL } from '../../shared/wire/limits.js';
import { RELEASE_VERSIONS } from '../../shared/wire/versions.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { slicesOf, type Slices } from '../../packs/slices/open-slices.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { NodeWorld, PackHandlers } from '../cluster/simulated-node.js';
import { DEVICE_BYTES } from './draw-budget.js';
import { faultyStoreFiles } from './faulty-store-files.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { DeviceFaults } from './faulty-device.js';
import { slowRecorder } from './slow-recorder.js';
import { readDrawnMaps } from './drawn-maps.js';
import type { Scenario, ScenarioModel, ScenarioNode } from './scenario.js';
import type { ScenarioTrust } from './scenario-trust.js';
import { HeldExperts } from '../../packs/format/held-experts.js';
import type { PackDescription, PackPiece } from '../../shared/wire/messages.js';

/** Reads files of this machine, while virtual time stands still. */
const openSlicesOutside = (pack: Pack, runtime: VirtualRuntime): Promise<Slices> =>
  runtime.outside(() => slicesOf(pack));

/** Directory of the fixture pack of a model. */
export function modelDirectory(model: ScenarioModel): string {
  return join(packageRoot(), 'test', 'fixtures', 'packs', model);
}

/** A line that a daemon has logged. */
export interface LoggedLine {
  node: string;
  level: 'error' | 'warn';
  event: string;
  fields: Record<string, unknown>;
}

/** The disks and devices of the nodes of one scenario. Dispose of it at the end. */
export class ScenarioWorld {
  readonly devices = new Map<string, DeviceFaults>();
  readonly packPieceFaults = new Map<string, PackPieceFaults>();
  readonly logged: LoggedLine[] = [];
  readonly lies = new LieWatch();
  private readonly directory = mkdtempSync(join(quickDirectory(), 'odmoe-faults-'));
  private readonly ownPacks = new Set<string>();

  /** `openShared`: opens a fixture pack, which nobody changes. */
  constructor(
    private readonly scenario: Scenario,
    private readonly openShared: (model: ScenarioModel) => Promise<Pack>,
    private readonly operations: OperationLog | null,
    private readonly nowMs: () => number,
    /** null: the cluster has no authority. */
    private readonly trust: ScenarioTrust | null,
  ) {
    const damaged = scenario.faults.filter(({ kind }) => kind === 'flippedBits').map(({ node }) => node);
    for (const id of new Set(damaged)) if (!this.fetches(id)) this.copyPack(id);
  }

  /** Directory of the pack that this node reads; a node whose pack is damaged has its own copy. */
  packDirectory(id: string): string {
    return this.ownPacks.has(id) ? join(this.directory, id, 'pack') : modelDirectory(this.scenario.model);
  }

  /** True if the node has no pack at first and fetches it. */
  fetches(id: string): boolean {
    return this.scenario.nodes.some(({ settings, fetches }) => settings.id === id && fetches);
  }

  dataDirectory(id: string): string {
    return join(this.directory, id, 'data');
  }

  /** The node's settings with the directories on its disk. */
  settingsOf({ settings, fetches }: ScenarioNode): NodeSettings {
    const { id } = settings;
    const modelPath = fetches ? null : this.packDirectory(id);
    return { ...settings, modelPath, stateDirectory: join(this.directory, id, 'state') };
  }

  of({ settings, isNewer }: ScenarioNode): NodeWorld {
    const { id, role } = settings;
    const faults = new DeviceFaults((error) => this.placeless(error));
    const pieceFaults = new PackPieceFaults();
    this.devices.set(id, faults);
    this.packPieceFaults.set(id, pieceFaults);
    const stored = new SeededRandom(this.scenario.seed).fork(`stored rows of ${id}`);
    return {
      devices: (runtime) => {
        const devices = faults.devices(runtime, (budgetBytes) => this.pace(faults, budgetBytes));
        return this.recorded(id, devices, runtime);
      },
      readPredictor: ({ shape }) => readDrawnMaps(this.scenario, shape),
      openPack: (directory, runtime, quality) =>
        runtime.outside(() =>
          directory === modelDirectory(this.scenario.model)
            ? this.openShared(this.scenario.model)
            : openServedPack(directory, quality),
        ),
      ...(settings.main.quality.kind === 'exact' ? {} : { openSlices: openSlicesOutside }),
      wrapPack: (pack) => pieceFaults.wrap(pack),
      trust: (runtime) => this.trust?.open({ role, id }, runtime) ?? null,
      dataDirectory: this.dataDirectory(id),
      openRecorder: slowRecorder(this.dataDirectory(id), stored.fork('recorded states')),
      openStoreFiles: (directory, runtime) => faultyStoreFiles(stored, (ms) => runtime.sleep(ms))(directory, runtime),
      versions: isNewer ? { ...RELEASE_VERSIONS, newestProtocol: NEWEST_PROTOCOL + 1 } : RELEASE_VERSIONS,
      log: this.logOf(id),
      seed: this.scenario.seed,
    };
  }

  async dispose(): Promise<void> {
    for (const faults of this.devices.values()) await faults.disposeAll();
    rmSync(this.directory, { recursive: true, force: true });
  }

  private copyPack(id: string): void {
    const target = join(this.directory, id, 'pack');
    mkdirSync(target, { recursive: true });
    cpSync(modelDirectory(this.scenario.model), target, { recursive: true });
    this.ownPacks.add(id);
  }

  private recorded(node: string, devices: Devices, runtime: VirtualRuntime): Devices {
    const log = this.operations;
    if (log === null) return devices;
    const nowMs = (): number => runtime.nowMs();
    return { ...devices, open: (request) => recordingDevice(devices.open(request), { node, nowMs, log }) };
  }

  /** The error without directory names of this machine: peers may get it, and the history must be the same on all machines. */
  private placeless(thrown: unknown): OdmoeError {
    const { code, message } = toOdmoeError(thrown);
    return new OdmoeError(code, message.replaceAll(this.directory, '/node').replaceAll(packageRoot(), '/odmoe'));
  }

  private pace(faults: DeviceFaults, budgetBytes: number): DevicePace {
    const { denseMs, expertMs, lmHeadMs, loadMs } = this.scenario.pace;
    const times = {
      attendLayers: [[new SlowedLayer(denseMs, faults)]],
      layersBehind: [],
      router: NO_TIME,
      expert: new SlowedOperator(expertMs, faults),
      lmHead: new SlowedOperator(lmHeadMs, faults),
      exponentShare: 0.4,
      recoverMs: 0,
      // Computed again at each load.
      get loadMs() {
        return (loadMs + (faults.readSlowness > 1 ? 1 : 0)) * faults.readSlowness;
      },
    };
    return { times, memory: { bytes: DEVICE_BYTES, budgetBytes } };
  }

  private logOf(node: string): Logger {
    const note =
      (level: LoggedLine['level']) =>
      (event: string, fields: Record<string, unknown> = {}): void => {
        this.logged.push({ node, level, event, fields });
        if (event === DISTRUST_EVENT) this.lies.setAside(String(fields['worker']), this.nowMs());
      };
    return { error: note('error'), warn: note('warn'), info: () => undefined, debug: () => undefined };
  }
}

/** A file system in memory if there is one: the files of nodes are not needed after the scenario, and writing is faster than to a disk. */
function quickDirectory(): string {
  try {
    accessSync(MEMORY_FILES, constants.W_OK);
    return MEMORY_FILES;
  } catch {
    return tmpdir();
  }
}

const MEMORY_FILES = '/dev/shm';

const NO_TIME: OperatorTime = { overheadMs: 0, weightsMs: 0, rowMs: 0 };
/** On a slow device, operations without time take this long. */
const SLOWED_MS = 0.1;

/** The time of an operation is computed again each time, because its device may have become slow. */
class SlowedOperator implements OperatorTime {
  readonly weightsMs = 0;

  constructor(
    private readonly ms: number,
    private readonly faults: Pick<DeviceFaults, 'slowness'>,
  ) {}

  get overheadMs(): number {
    const { slowness } = this.faults;
    return slowness > 1 ? (this.ms + SLOWED_MS) * slowness : this.ms;
  }

  get rowMs(): number {
    return this.overheadMs / 10;
  }
}

class SlowedLayer extends SlowedOperator implements LayerTime {
  readonly context = [];
}

/** Faults of a node's pack service: it gives peers false pack pieces, or claims to have parts that it does not have. They survive a restart of the node. */
export class PackPieceFaults {
  /** True if streams of pack pieces end early. */
  areShort = false;
  /** True if one bit of each pack piece is flipped. */
  areWrong = false;
  /** True if the node claims to have the whole pack. */
  claimsAll = false;
  /** Number of false pack pieces and claims that peers have got. */
  sent = 0;

  /** Wraps the node's pack service; each call applies the present faults. */
  wrap(real: PackHandlers): PackHandlers {
    return {
      describe: async (...asked) => this.described(await real.describe(...asked)),
      manifest: (...asked) => this.changed(real.manifest(...asked)),
      read: (...asked) => this.changed(real.read(...asked)),
    };
  }

  private described(description: PackDescription): PackDescription {
    if (!this.claimsAll || description.whole) return description;
    this.sent += 1;
    const { layers, experts } = description;
    return { ...description, whole: true, heldExperts: HeldExperts.all(layers, experts).toBits() };
  }

  private async *changed(pieces: AsyncIterable<PackPiece>): AsyncGenerator<PackPiece, void, undefined> {
    for await (const { bytes } of pieces) {
      const isShort = this.areShort;
      const isWrong = this.areWrong;
      if (isShort || isWrong) this.sent += 1;
      const sent = isWrong ? withFlippedBit(bytes) : bytes;
      yield { bytes: isShort ? sent.subarray(0, sent.length >> 1) : sent };
      if (isShort) return;
    }
  }
}

function withFlippedBit(bytes: Uint8Array): Uint8Array {
  const flipped = Uint8Array.from(bytes);
  const place = flipped.length >> 1;
  flipped[place] = (flipped[place] ?? 0) ^ 0x04;
  return flipped;
}
