/** Each stage of loading experts beside what the machine gives: raw reads, memcpy, decoding alone, and whole loads. */
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
import { assertInvariant } from '../../shared/errors/assert-invariant.js';
import { gaussianValues, measureCodecs } from '../codec/measure-codecs.js';

export interface LoadSetting {
  /** Rounds over all stages; of each the fastest counts, as what else the machine does only makes it slower. */
  rounds: number;
  /** Of one measurement. */
  milliseconds: number;
  /** Reads in flight where there are several. */
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
  /** What is counted: bytes read, copied or stored, or of the BF16 weights that come out. */
  counted: 'copied' | 'read' | 'weights' | 'stored';
  bytesPerS: number;
  /** The stage that bounds this one, and its share of that; null: it is a limit itself. */
  limit: { stage: string; share: number } | null;
}

interface MeasuredStage {
  stage: string;
  counted: LoadStage['counted'];
  /** Stages of which the fastest is the limit. */
  limits: readonly string[];
  measure: () => Promise<number>;
}

const COPY_ONE = 'memcpy, 1 thread';
const COPY_ALL = 'memcpy, all threads';
const SLOTS_AT_ONCE = 4;
const SAMPLE_BYTES = 16 * 1024 * 1024;

/** @throws what reading and loading throw: STORAGE_FAILED, PACK_CORRUPT, DEVICE_OUT_OF_MEMORY */
export async function measureLoadStages(
  device: Device,
  packs: readonly LoadedPack[],
  setting: LoadSetting,
  onProgress: (done: number, total: number) => void,
): Promise<LoadStage[]> {
  const stages = packs.flatMap((loaded, index) => [
    ...(index === 0 ? [...copyStages(setting), ...readStages(loaded.pack, setting)] : []),
    ...decodeStages(loaded.codec, setting),
    ...loadStages(device, loaded, setting),
  ]);
  const best = new Map<string, number>();
  let done = 0;
  for (let round = 0; round < setting.rounds; round += 1) {
    for (const { stage, measure } of stages) {
      best.set(stage, Math.max(best.get(stage) ?? 0, await measure()));
      done += 1;
      onProgress(done, setting.rounds * stages.length);
    }
  }
  return stages.map(({ stage, counted, limits }) => {
    const bytesPerS = best.get(stage) ?? 0;
    return { stage, counted, bytesPerS, limit: limitOf(bytesPerS, limits, best) };
  });
}

function limitOf(bytesPerS: number, limits: readonly string[], best: ReadonlyMap<string, number>): LoadStage['limit'] {
  const [first, ...others] = limits;
  if (first === undefined) return null;
  const stage = others.reduce((left, right) => ((best.get(right) ?? 0) > (best.get(left) ?? 0) ? right : left), first);
  return { stage, share: bytesPerS / (best.get(stage) ?? Number.POSITIVE_INFINITY) };
}

function copyStages({ milliseconds }: LoadSetting): MeasuredStage[] {
  const copy = (stage: string, threads: number): MeasuredStage => ({
    ...{ stage, counted: 'copied', limits: [] },
    measure: () => measureMemoryCopy(threads, milliseconds),
  });
  return [copy(COPY_ONE, 1), copy(COPY_ALL, availableParallelism())];
}

const readName = (direct: boolean, depth: number, way: string): string =>
  `${direct ? 'direct' : 'cached'} reads, ${depth === 1 ? 'one after another' : `${depth} at a time, ${way}`}`;

function readNames(direct: boolean, depth: number): string[] {
  return [readName(direct, 1, 'threads'), readName(direct, depth, 'threads'), readName(direct, depth, 'io_uring')];
}

function readStages(pack: Pack, { milliseconds, depth }: LoadSetting): MeasuredStage[] {
  const { path, bytes } = expertFile(pack);
  const stage = (direct: boolean, at: number, way: WantedStorageWay): MeasuredStage => ({
    ...{ stage: readName(direct, at, way), counted: 'read' },
    limits: direct ? (at === 1 ? [] : readNames(true, depth)) : [COPY_ALL],
    measure: async () => (await measureQueuedReads(path, bytes, { way, depth: at, direct }, milliseconds)).bytesPerS,
  });
  return [false, true].flatMap((direct) => [
    stage(direct, 1, 'threads'),
    stage(direct, depth, 'threads'),
    stage(direct, depth, 'io_uring'),
  ]);
}

function decodeStages(codec: string, { milliseconds }: LoadSetting): MeasuredStage[] {
  if (codec === 'raw') return [];
  const sample = gaussianValues(SAMPLE_BYTES);
  return [
    {
      ...{ stage: `decoding ${codec}, 1 thread`, counted: 'weights', limits: [COPY_ONE] },
      measure: async () => {
        const [row] = await measureCodecs([codec as PackCodec], [sample], 1, () => undefined, milliseconds);
        return row?.decodeBytesPerS ?? 0;
      },
    },
  ];
}

function loadStages(device: Device, { codec, pack }: LoadedPack, setting: LoadSetting): MeasuredStage[] {
  const fromStorage = [false, true].flatMap((direct) =>
    [1, setting.depth].map((depth): MeasuredStage => {
      const reads = direct ? 'direct' : 'cached';
      const at = depth === 1 ? 'one read at a time' : `${depth} reads at a time`;
      return {
        stage: `loads of ${codec}, ${reads}, ${at}`,
        // Stored as they are, weights are what is read.
        counted: codec === 'raw' ? 'weights' : 'stored',
        limits: readNames(direct, setting.depth),
        measure: () => measureLoads(device, pack, { direct, depth, held: false }, setting),
      };
    }),
  );
  const fromMemory: MeasuredStage = {
    ...{ stage: `loads of ${codec}, held in host memory`, limits: [COPY_ALL] },
    counted: codec === 'raw' ? 'weights' : 'stored',
    measure: () => measureLoads(device, pack, { direct: false, depth: 1, held: true }, setting),
  };
  return [...fromStorage, fromMemory];
}

interface LoadWay {
  direct: boolean;
  /** Reads in flight at a time. */
  depth: number;
  /** The experts are in host memory: nothing is read. */
  held: boolean;
}

/** Stored bytes a second into slots, several experts on their way at a time. */
async function measureLoads(
  device: Device,
  pack: Pack,
  { direct, depth, held }: LoadWay,
  { decompressionThreads, milliseconds }: LoadSetting,
): Promise<number> {
  const reading = { decompressionThreads, directIo: direct, storageBytesPerS: 0, readDepth: depth };
  const sizes = slotSizes(device, pack, reading);
  const slots = device.createExpertSlots(sizes.shape, SLOTS_AT_ONCE, 1, sizes.loader);
  try {
    const { expertLayers, experts } = pack.shape;
    const numbers = Array.from({ length: expertLayers * experts }, (_, index) =>
      slots.register(pack.expert(Math.floor(index / experts), index % experts)),
    );
    if (held) for (const number of numbers) await slots.hold(number);
    // The first load into a slot finds memory that the system has still to give.
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

/** The file of the first expert, as far as experts of its layer lie in it. */
function expertFile(pack: Pack): { path: string; bytes: number } {
  const path = pack.expert(0, 0).gate.chunks[0]?.path ?? '';
  let bytes = 0;
  for (let expert = 0; expert < pack.shape.experts; expert += 1) {
    const { gate, up, down } = pack.expert(0, expert);
    for (const chunk of [...gate.chunks, ...up.chunks, ...down.chunks]) {
      if (chunk.path === path) bytes = Math.max(bytes, chunk.offsetBytes + chunk.storedBytes);
    }
  }
  return { path, bytes };
}
