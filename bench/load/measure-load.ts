/** Measures each stage of loading experts, and the machine's limits: raw reads, memcpy, decoding alone, and whole loads. */
import { availableParallelism } from 'node:os';
import { slotSizes } from '../../engine/planning/slot-sizes.js';
import {
  FROM_STORAGE,
  measureMemoryCopy,
  measureQueuedReads,
  type Device,
  type WantedStorageWay,
} from '../../native/index.js';
import type { PackCodec } from '../../packs/format/pack-codec.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { gaussianValues, measureCodecs } from '../codec/measure-codecs.js';
import { median } from '../statistics/median.js';

export interface LoadSetting {
  /** Rounds over all stages. The fastest round of each stage counts, because other work on the machine only slows it. */
  rounds: number;
  /** Time of one measurement. */
  milliseconds: number;
  /** Reads in flight in stages with several. */
  depth: number;
  /** 0: half of the processors, at most 8. */
  decompressionThreads: number;
}

/** A codec, and a pack whose exponents are stored with it. */
export interface LoadedPack {
  codec: string;
  pack: Pack;
}

export interface LoadStage {
  stage: string;
  /** The counted bytes: read, copied, stored, or of the resulting BF16 weights. */
  counted: 'copied' | 'read' | 'weights' | 'stored';
  bytesPerS: number;
  /** The stage that limits this one, and this stage's share of it (median of the rounds); null: this stage is a limit itself. */
  limit: { stage: string; share: number } | null;
}

interface MeasuredStage {
  stage: string;
  counted: LoadStage['counted'];
  /** Possible limiting stages; the fastest of them is the limit. */
  limits: readonly string[];
  measure: () => Promise<number>;
}

const COPY_ALL = 'memcpy, all threads';
const SLOTS_AT_ONCE = 4;
const SAMPLE_BYTES = 16 * 1024 * 1024;

/**
 * Raw reads of a pack's file run right before the loads of its experts, because the speed of storage may change within a minute. The packs
 * must already be written to storage: a write-back in the background would slow the reads.
 * @throws the errors of reading and loading: STORAGE_FAILED, PACK_CORRUPT, DEVICE_OUT_OF_MEMORY
 */
export async function measureLoadStages(
  device: Device,
  packs: readonly LoadedPack[],
  setting: LoadSetting,
  onProgress: (done: number, total: number) => void,
): Promise<LoadStage[]> {
  const stages = [
    ...copyStages(setting),
    ...packs.flatMap((loaded) => [...decodeStages(loaded.codec, setting), ...packStages(device, loaded, setting)]),
  ];
  const rounds: Map<string, number>[] = [];
  let done = 0;
  for (let round = 0; round < setting.rounds; round += 1) {
    const measured = new Map<string, number>();
    rounds.push(measured);
    for (const { stage, measure } of stages) {
      measured.set(stage, await measure());
      done += 1;
      onProgress(done, setting.rounds * stages.length);
    }
  }
  return stages.map(({ stage, counted, limits }) => ({
    stage,
    counted,
    bytesPerS: fastest(stage, rounds),
    limit: limitOf(stage, limits, rounds),
  }));
}

/** Bytes per second of each stage in one round. */
type Round = ReadonlyMap<string, number>;

function fastest(stage: string, rounds: readonly Round[]): number {
  return Math.max(...rounds.map((round) => round.get(stage) ?? 0));
}

/** The fastest of `limits` over all rounds, and the median over the rounds of `stage` divided by the fastest limit of its round. */
export function limitOf(stage: string, limits: readonly string[], rounds: readonly Round[]): LoadStage['limit'] {
  const [first, ...others] = limits;
  if (first === undefined) return null;
  const limit = others.reduce((left, right) => (fastest(right, rounds) > fastest(left, rounds) ? right : left), first);
  const shares = rounds.map(
    (round) => (round.get(stage) ?? 0) / Math.max(...limits.map((each) => round.get(each) ?? 0)),
  );
  return { stage: limit, share: median(shares) };
}

function copyStages({ milliseconds }: LoadSetting): MeasuredStage[] {
  const copy = (stage: string, threads: number): MeasuredStage => ({
    stage,
    counted: 'copied',
    limits: [],
    measure: () => measureMemoryCopy(threads, milliseconds),
  });
  return [copy('memcpy, 1 thread', 1), copy(COPY_ALL, availableParallelism())];
}

function readName(codec: string, direct: boolean, depth: number, way: string): string {
  const order = depth === 1 ? 'one after another' : `${depth} at a time, ${way}`;
  return `reads of ${codec}, ${kindOf(direct)}, ${order}`;
}

const kindOf = (direct: boolean): string => (direct ? 'direct' : 'cached');

function readNames(codec: string, direct: boolean, depth: number): string[] {
  const name = (at: number, way: string): string => readName(codec, direct, at, way);
  return [name(1, 'threads'), name(depth, 'threads'), name(depth, 'io_uring')];
}

/** Cached reads and loads, then direct ones, then loads from memory. */
function packStages(device: Device, loaded: LoadedPack, setting: LoadSetting): MeasuredStage[] {
  const part = oneFile(loaded.pack);
  const fromStorage = [false, true].flatMap((direct) => [
    ...readStages(loaded.codec, part, direct, setting),
    ...loadStages(device, loaded, part.experts, direct, setting),
  ]);
  return [...fromStorage, heldStage(device, loaded, part.experts, setting)];
}

/** Cached reads are a limit themselves: their target stays in the processor's caches, unlike that of memcpy. */
function readStages(
  codec: string,
  { path, bytes }: FilePart,
  direct: boolean,
  { milliseconds, depth }: LoadSetting,
): MeasuredStage[] {
  const stage = (at: number, way: WantedStorageWay): MeasuredStage => ({
    stage: readName(codec, direct, at, way),
    counted: 'read',
    limits: at === 1 || !direct ? [] : readNames(codec, true, depth),
    measure: async () => (await measureQueuedReads(path, bytes, { way, depth: at, direct }, milliseconds)).bytesPerS,
  });
  return [stage(1, 'threads'), stage(depth, 'threads'), stage(depth, 'io_uring')];
}

function decodeStages(codec: string, { milliseconds }: LoadSetting): MeasuredStage[] {
  if (codec === 'raw') return [];
  const sample = gaussianValues(SAMPLE_BYTES);
  return [
    {
      stage: `decoding ${codec}, 1 thread`,
      counted: 'weights',
      limits: [],
      measure: async () => {
        const [row] = await measureCodecs([codec as PackCodec], [sample], 1, () => undefined, milliseconds);
        return row?.decodeBytesPerS ?? 0;
      },
    },
  ];
}

function loadStages(
  device: Device,
  { codec, pack }: LoadedPack,
  experts: readonly ExpertAt[],
  direct: boolean,
  setting: LoadSetting,
): MeasuredStage[] {
  return [1, setting.depth].map((depth) => ({
    stage: `loads of ${codec}, ${kindOf(direct)}, ${depth === 1 ? 'one read at a time' : `${depth} reads at a time`}`,
    counted: countedOf(codec),
    limits: readNames(codec, direct, setting.depth),
    measure: () => measureLoads(device, pack, experts, { direct, depth, held: false }, setting),
  }));
}

function heldStage(
  device: Device,
  { codec, pack }: LoadedPack,
  experts: readonly ExpertAt[],
  setting: LoadSetting,
): MeasuredStage {
  return {
    stage: `loads of ${codec}, held in host memory`,
    counted: countedOf(codec),
    limits: [COPY_ALL],
    measure: () => measureLoads(device, pack, experts, { direct: false, depth: 1, held: true }, setting),
  };
}

/** With the raw codec, the stored bytes are the weights themselves. */
function countedOf(codec: string): 'weights' | 'stored' {
  return codec === 'raw' ? 'weights' : 'stored';
}

interface LoadWay {
  direct: boolean;
  /** Reads in flight at a time. */
  depth: number;
  /** True: the experts are in host memory, so nothing is read. */
  held: boolean;
}

/** Stored bytes per second into slots, with several loads in flight. */
async function measureLoads(
  device: Device,
  pack: Pack,
  experts: readonly ExpertAt[],
  { direct, depth, held }: LoadWay,
  { decompressionThreads, milliseconds }: LoadSetting,
): Promise<number> {
  const reading = { decompressionThreads, directIo: direct, storageBytesPerS: 0, readDepth: depth };
  const sizes = slotSizes(device, pack, reading);
  const slots = device.createExpertSlots(sizes.shape, SLOTS_AT_ONCE, 1, sizes.loader);
  try {
    const numbers = experts.map(({ layer, expert }) => slots.register(pack.expert(layer, expert)));
    if (held) for (const number of numbers) await slots.hold(number);
    // The first load into a slot waits until the system provides its memory.
    for (let slot = 0; slot < SLOTS_AT_ONCE; slot += 1) await slots.load(slot, numbers[0] ?? 0, FROM_STORAGE);
    let next = 0;
    let storedBytes = 0;
    const startMs = performance.now();
    const loadInto = async (slot: number): Promise<void> => {
      do {
        const number = numbers[next % numbers.length] ?? 0;
        next += 1;
        const request = held ? { ...FROM_STORAGE, held: number } : FROM_STORAGE;
        const { readBytes, hostBytes = 0 } = await slots.load(slot, number, request);
        assertInvariant(!held || readBytes === 0, 'an expert in host memory is not read');
        storedBytes += readBytes + hostBytes;
      } while (performance.now() - startMs < milliseconds);
    };
    await Promise.all(Array.from({ length: SLOTS_AT_ONCE }, (_, slot) => loadInto(slot)));
    return (storedBytes * 1000) / (performance.now() - startMs);
  } finally {
    slots.dispose();
  }
}

interface ExpertAt {
  layer: number;
  expert: number;
}

/** A file of a pack, the experts that lie completely in it, and the end of the last one. */
export interface FilePart {
  path: string;
  bytes: number;
  experts: readonly ExpertAt[];
}

/** The file with the first expert. Raw reads and loads must use the same file: otherwise one could be cached and the other not. */
export function oneFile(pack: Pack): FilePart {
  const { expertLayers, experts: count } = pack.shape;
  const path = pack.expert(0, 0).gate.chunks[0]?.path ?? '';
  const experts: ExpertAt[] = [];
  let bytes = 0;
  for (let layer = 0; layer < expertLayers; layer += 1) {
    for (let expert = 0; expert < count; expert += 1) {
      const { gate, up, down } = pack.expert(layer, expert);
      const chunks = [...gate.chunks, ...up.chunks, ...down.chunks];
      if (!chunks.every((chunk) => chunk.path === path)) continue;
      experts.push({ layer, expert });
      bytes = Math.max(bytes, ...chunks.map((chunk) => chunk.offsetBytes + chunk.storedBytes));
    }
  }
  assertInvariant(experts.length > 0, 'an expert of a pack lies in one file');
  return { path, bytes, experts };
}
