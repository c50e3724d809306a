import type { QueuedReadRequest, QueuedReadSpeed } from '../../native/index.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

/** How fast a file's first `bytes` are read with several reads in flight, for about `milliseconds`: native's measureQueuedReads. */
export type MeasureReads = (
  path: string,
  bytes: number,
  request: QueuedReadRequest,
  milliseconds: number,
) => Promise<QueuedReadSpeed>;

export interface DepthSpeed {
  depth: number;
  bytesPerS: number;
}

export interface ChosenDepth {
  depth: number;
  /** By depth; empty where nothing was measured. */
  speeds: DepthSpeed[];
  /** Why nothing was; else empty. */
  unmeasured: string;
}

/** Where nothing is measured: enough for one expert's three matrices and what comes after them. */
export const USUAL_READ_DEPTH = 4;

const MEASURED_DEPTHS = [1, 2, 4, 8, 16];
/** Of each depth, whose best round counts: the first one may find the file outside the page cache. */
const ROUNDS = 2;
const MEASURE_MS = 50;
/** Of a file that is measured with. A smaller one would show how long it takes to begin, not how fast reading is. */
const LEAST_BYTES = 32 * 1024 * 1024;
const MOST_BYTES = 256 * 1024 * 1024;
/** Of the fastest depth's speed, what a smaller one has to give. */
const AS_FAST = 0.95;

/** The smallest depth that is about as fast as any. A deeper queue makes what is urgent wait for more that is not. Pure. */
export function chooseReadDepth(speeds: readonly DepthSpeed[]): number {
  const fastest = Math.max(...speeds.map(({ bytesPerS }) => bytesPerS));
  const fastEnough = speeds.filter(({ bytesPerS }) => bytesPerS >= AS_FAST * fastest);
  return Math.min(...fastEnough.map(({ depth }) => depth));
}

/**
 * Reads some of the model's first experts' file at each depth, and chooses. Takes about half a second. What cannot be measured (a small file, one
 * that is still to be fetched) gives the usual depth.
 */
export async function measureReadDepth(
  source: ModelSource,
  directIo: boolean,
  measure: MeasureReads,
): Promise<ChosenDepth> {
  const chunks = source.expert(0, 0).gate.chunks;
  const path = chunks[0]?.path;
  const bytes = Math.min(MOST_BYTES, largestEnd(source));
  if (path === undefined || bytes < LEAST_BYTES) {
    return { depth: USUAL_READ_DEPTH, speeds: [], unmeasured: 'the model is small' };
  }
  const speeds: DepthSpeed[] = [];
  try {
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const depth of MEASURED_DEPTHS) {
        const { bytesPerS } = await measure(path, bytes, { way: 'auto', depth, direct: directIo }, MEASURE_MS);
        const before = speeds.find((speed) => speed.depth === depth);
        if (before === undefined) speeds.push({ depth, bytesPerS });
        else before.bytesPerS = Math.max(before.bytesPerS, bytesPerS);
      }
    }
  } catch (thrown) {
    return { depth: USUAL_READ_DEPTH, speeds: [], unmeasured: toOdmoeError(thrown).message };
  }
  return { depth: chooseReadDepth(speeds), speeds, unmeasured: '' };
}

/** Where the last expert of the first one's file ends, bytes. */
function largestEnd(source: ModelSource): number {
  const path = source.expert(0, 0).gate.chunks[0]?.path;
  let end = 0;
  for (let expert = 0; expert < source.shape.experts; expert += 1) {
    const { gate, up, down } = source.expert(0, expert);
    for (const chunk of [...gate.chunks, ...up.chunks, ...down.chunks]) {
      if (chunk.path === path) end = Math.max(end, chunk.offsetBytes + chunk.storedBytes);
    }
  }
  return end;
}
