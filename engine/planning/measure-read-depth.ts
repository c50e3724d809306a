import type { QueuedReadRequest, QueuedReadSpeed } from '../../native/index.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

/** Measures the read speed of a file's first `bytes` with several reads in flight, for about `milliseconds`: native's measureQueuedReads. */
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
  /** By depth; empty if nothing was measured. */
  speeds: DepthSpeed[];
  /** The reason why nothing was measured; otherwise empty. */
  unmeasured: string;
}

/** The depth without a measurement: enough for one expert's three matrices and the reads after them. */
export const USUAL_READ_DEPTH = 4;

const MEASURED_DEPTHS = [1, 2, 4, 8, 16];
/** Rounds per depth; the best one counts, because in the first round the file may not be in the page cache. */
const ROUNDS = 2;
const MEASURE_MS = 50;
/** Smallest and largest part of a file to measure with. A smaller file would show the start-up time, not the speed of reading. */
const LEAST_BYTES = 32 * 1024 * 1024;
const MOST_BYTES = 256 * 1024 * 1024;
/** The share of the fastest depth's speed that a smaller depth must reach. */
const AS_FAST = 0.95;

/** The smallest depth that is about as fast as any. In a deeper queue, urgent reads wait for more reads that are not urgent. Pure. */
export function chooseReadDepth(speeds: readonly DepthSpeed[]): number {
  const fastest = Math.max(...speeds.map(({ bytesPerS }) => bytesPerS));
  const fastEnough = speeds.filter(({ bytesPerS }) => bytesPerS >= AS_FAST * fastest);
  return Math.min(...fastEnough.map(({ depth }) => depth));
}

/**
 * Reads from the file of the model's first experts at each depth, and chooses a depth. Takes about half a second. A file that cannot be
 * measured (too small, or not fetched yet) gives the usual depth.
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

/** End of the last expert in the file of the first expert, in bytes. */
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
