/**
 * The table `served`: decode of clusters whose time goes into loads, with lossless experts and with slices. Main, workers and shadow run their own code and
 * arithmetic on a virtual clock. Storage gives so many bytes a second, an expert has the bytes that its pack stores for it, and nothing is cached.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NATIVE_DEVICES, type Devices } from '../../engine/devices/devices.js';
import type { EmulatedDevice, ProfiledModel } from '../../engine/emulation/device-profile.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { pacedDevice } from '../../engine/emulation/paced-device.js';
import { promptTokenIds } from '../../engine/generation/prompt-encoder.js';
import { calibrate } from '../../engine/planning/calibrate.js';
import { wrapHandle, type ExpertSlots } from '../../native/index.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import { NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { DEFAULT_CODEC, DEFAULT_SHARDS, packCheckpoint } from '../../packs/packing/pack-checkpoint.js';
import { addSlices, addThresholds } from '../../packs/slices/add-slices.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { slicesOf } from '../../packs/slices/open-slices.js';
import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { partOfPlane, PARTS, recordOf, sumOfParts, type PerPart } from '../../shared/model/expert-parts.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import { readQuality, type Quality } from '../../shared/settings/quality.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { answerAll, startDaemons, stopDaemons } from '../../simulator/cluster/run-daemons.js';
import { SimulatedCluster } from '../../simulator/cluster/simulated-cluster.js';
import type { NodeWorld } from '../../simulator/cluster/simulated-node.js';
import { ProfiledLinks } from '../../simulator/network/link-model.js';
import { DEFAULT_SET_UP } from '../../simulator/simulate/cluster-set-up.js';
import { clusterSettings } from '../../simulator/simulate/cluster-settings.js';
import { SILENT } from '../../simulator/simulate/traced-world.js';
import { demoPrompts } from '../../engine/fitting/demo-prompts.js';

export interface ServedRow {
  table: 'served';
  workers: number;
  prediction: ServedCluster['prediction'];
  /** As `main.quality` names it; exact: lossless experts by the codec huffman. */
  quality: string;
  /** Decode. */
  tokens_per_s: number;
  /** Over lossless experts in the same cluster. */
  speedup: number;
  /** The sum over all workers, from their start to the end of the answer. */
  loads: number;
  /** Bytes read from storage, as the workers' status in the answer's report says. */
  read_bytes: number;
  /** Bytes that went over the paced links for these loads: the time that they took, by the rate of the storage. */
  link_bytes: number;
  bytes_a_load: number;
}

export interface ServedCluster {
  readonly workers: number;
  readonly prediction: 'off' | 'sep';
}

export interface ServedOptions {
  readonly clusters: readonly ServedCluster[];
  /** The first one is what the others are compared with. */
  readonly qualities: readonly string[];
  /** Tokens of the answer. */
  readonly tokens: number;
}

/** Without predictions each expert that a router chooses is loaded while its execute waits. With a shadow loads run ahead. */
export const SERVED: ServedOptions = {
  clusters: [
    { workers: 1, prediction: 'off' },
    { workers: 8, prediction: 'sep' },
  ],
  qualities: ['exact', 'sliced(8,4)', 'sliced(8,4,critical=0.3)', 'sliced(8,4,low)'],
  tokens: 64,
};

/** Devices and network; the bytes are those of the model that runs. */
const PROFILE = join(packageRoot(), 'bench', 'profiles', 'rtx3090-testbed.yaml');
/** So slow that a load of a lossless expert of the demo model takes more than ten times as long as a layer of main. */
const STORAGE_BYTES_PER_S = 2e6;
const MS_PER_S = 1000;
const SEED = 1;

/** No rows where the checkpoint has no tokenizer. @throws the errors of packing */
export async function measureServed(checkpoint: string, options: ServedOptions): Promise<ServedRow[]> {
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-served-'));
  try {
    const packPath = join(directory, 'pack');
    const pack = await makePack(checkpoint, packPath);
    const tokenizer = await openTokenizer(packPath);
    if (tokenizer === null) return [];
    const [text = ''] = demoPrompts(1);
    const promptIds = promptTokenIds({ text, messages: [], promptTokenIds: [], raw: false }, tokenizer, 0);
    const rows: ServedRow[] = [];
    for (const cluster of options.clusters) {
      let losslessTokensPerS: number | null = null;
      for (const quality of options.qualities) {
        const served = await serve({ pack, cluster, quality, promptIds, tokens: options.tokens });
        losslessTokensPerS ??= served.tokens_per_s;
        rows.push({ ...served, speedup: served.tokens_per_s / losslessTokensPerS });
      }
    }
    return rows;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** A pack as `odmoe pack --slices 8,4` makes it. */
async function makePack(checkpoint: string, packPath: string): Promise<Pack> {
  const { signal } = new AbortController();
  const options = {
    codec: DEFAULT_CODEC,
    shards: DEFAULT_SHARDS,
    name: null,
    onDamagedPack: 'refuse',
    signal,
  } as const;
  await packCheckpoint(checkpoint, packPath, options, NATIVE_PACKING_TOOLS);
  await addSlices(packPath, 'sliced84', { signal }, NATIVE_SLICING_TOOLS);
  const pack = await openServedPack(packPath);
  const setting = { budgetBytes: 0, signal, onProgress: () => undefined, withRecall: false };
  const measured = await calibrate(pack, setting);
  if ('problem' in measured) throw new OdmoeError('USAGE', `${checkpoint}: ${measured.problem}`);
  await addThresholds(packPath, measured.theta);
  return openServedPack(packPath);
}

interface Serving {
  readonly pack: Pack;
  readonly cluster: ServedCluster;
  readonly quality: string;
  readonly promptIds: readonly number[];
  readonly tokens: number;
}

async function serve({ pack, cluster, quality, promptIds, tokens }: Serving): Promise<Omit<ServedRow, 'speedup'>> {
  const { workers, prediction } = cluster;
  const links = new LinkTimes();
  const running = await start(pack, cluster, qualityOf(quality), links);
  try {
    const plan = { total: 1, atOnce: 1 };
    const [answer] = await answerAll(running, plan, () => requestOf(promptIds, tokens));
    const { finished } = requirePresent(answer, 'an answer was asked for.');
    const timing = requirePresent(finished.timing, 'an answer of a cluster has its times.');
    const ofWorkers = finished.nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');
    const loads = ofWorkers.reduce((sum, node) => sum + node.loads, 0);
    const readBytes = ofWorkers.reduce((sum, { storageReadBytes }) => sum + storageReadBytes, 0);
    return {
      table: 'served',
      workers,
      prediction,
      quality,
      tokens_per_s: timing.decodeTokensPerS,
      loads,
      read_bytes: readBytes,
      link_bytes: Math.round((links.loadedMs / MS_PER_S) * STORAGE_BYTES_PER_S),
      bytes_a_load: readBytes / loads,
    };
  } finally {
    await stopDaemons(running);
  }
}

/** Greedy, for exactly so many tokens. */
function requestOf(promptIds: readonly number[], maxTokens: number): GenerateRequest {
  const prompt = { text: '', messages: [], promptTokenIds: [...promptIds], raw: true };
  return { ...prompt, stop: [], maxTokens, sampling: null, ignoreEos: true, logprobs: 0 };
}

function qualityOf(text: string): Quality {
  const read = readQuality(text);
  assertInvariant('quality' in read, () => `${text} is a quality.`);
  return read.quality;
}

async function start(
  pack: Pack,
  { workers, prediction }: ServedCluster,
  quality: Quality,
  links: LinkTimes,
): Promise<SimulatedCluster> {
  const { shape, tiedEmbeddings } = pack;
  const model: ProfiledModel = { name: pack.name, shape, tiedEmbeddings, quantization: 'none', weightBytes: 2 };
  const profile = { ...loadDeviceProfile(PROFILE), model };
  const cluster = new SimulatedCluster({ links: () => new ProfiledLinks(profile), seed: SEED });
  const setUp = { ...DEFAULT_SET_UP, workers, prediction: { source: prediction, layersAhead: 1 } };
  const load = await loadOf(pack, quality);
  const daemons = clusterSettings(setUp, pack.directory, 1).map((settings, index) => {
    const times = { ...nodeTimes(profile, settings.role, 'bf16'), ...load, recoverMs: 0 };
    return {
      settings: {
        ...settings,
        main: { ...settings.main, quality },
        device: { ...settings.device, threads: 1 },
      },
      world: {
        devices: (runtime) => pacedDevices(times, runtime, links),
        openPack: (directory, runtime, asked) => runtime.outside(() => openServedPack(directory, asked)),
        dataDirectory: pack.directory,
        log: SILENT,
        seed: index,
      } satisfies NodeWorld,
    };
  });
  await startDaemons(cluster, daemons);
  return cluster;
}

/** The time of a load from storage, with the share of its exponents, or upper slices. */
async function loadOf(pack: Pack, quality: Quality): Promise<Pick<EmulatedDevice, 'loadMs' | 'exponentShare'>> {
  const source = quality.kind === 'exact' ? pack : await slicesOf(pack);
  const { expertLayers, experts } = pack.shape;
  const places = Array.from({ length: expertLayers * experts }, (_, place) => place);
  const stored = meanOf(
    places.map((place) => storedBytes(source.expert(Math.floor(place / experts), place % experts))),
  );
  const bytes = sumOfParts(stored);
  return { loadMs: (bytes / STORAGE_BYTES_PER_S) * MS_PER_S, exponentShare: stored.exponent / bytes };
}

/** Stored bytes of an expert, by part. */
function storedBytes({ gate, up, down }: ExpertSource): PerPart<number> {
  const chunks = [gate, up, down].flatMap((matrix) => matrix.chunks);
  return recordOf(PARTS, (part) =>
    chunks.filter(({ plane }) => partOfPlane(plane) === part).reduce((sum, chunk) => sum + chunk.storedBytes, 0),
  );
}

function meanOf(experts: readonly PerPart<number>[]): PerPart<number> {
  return recordOf(PARTS, (part) => experts.reduce((sum, expert) => sum + expert[part], 0) / experts.length);
}

/** Time that the paced links of all workers took for loads that ended with their expert. */
class LinkTimes {
  loadedMs = 0;

  add({ loaded, readMs }: Awaited<ReturnType<ExpertSlots['load']>>): void {
    if (loaded) this.loadedMs += sumOfParts(readMs);
  }
}

function pacedDevices(times: EmulatedDevice, runtime: VirtualRuntime, links: LinkTimes): Devices {
  return {
    cudaStatus: () => NATIVE_DEVICES.cudaStatus(),
    open: (request) => {
      const device = pacedDevice(NATIVE_DEVICES.open({ ...request, budgetBytes: 0 }), { times, memory: null }, runtime);
      return wrapHandle(device, {
        createExpertSlots: (...args) => {
          const slots = device.createExpertSlots(...args);
          return wrapHandle(slots, {
            load: async (...asked) => {
              const outcome = await slots.load(...asked);
              links.add(outcome);
              return outcome;
            },
          });
        },
      });
    },
  };
}
