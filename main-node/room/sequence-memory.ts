import { cacheRowFloats, isRecurrent, type ModelShape, recurrentStateFloats } from '../../shared/model/model-shape.js';

/** Positions in a row block of attention's rows, which the device allocates at once (native's kAttentionChunk). */
export const ROW_BLOCK_POSITIONS = 256;

const FLOAT_BYTES = 4;
/** Positions in a block of a recurrence's log (native's kSavedStateStep), and number of empty blocks that stay allocated. */
const LOG_BLOCK_POSITIONS = 32;
const SPARE_LOG_BLOCKS = 2;
/** Before a pass, a recurrence holds fewer positions than this. */
const LOG_POSITIONS = 64;

/**
 * Most device memory of a sequence with so many positions that shares nothing: keys and values in whole row blocks, states of recurrences, and their
 * latest rows. `passRows`: most rows of one of its passes.
 */
export function sequenceMemoryBytes(shape: ModelShape, positions: number, passRows: number): number {
  if (positions === 0) return 0;
  const floats = shape.layers.map(({ mixer }) => {
    const rowFloats = cacheRowFloats(mixer, shape.hiddenSize);
    if (!isRecurrent(mixer)) return rowFloats * blocksOf(positions, ROW_BLOCK_POSITIONS) * ROW_BLOCK_POSITIONS;
    const logBlocks = blocksOf(Math.min(positions, LOG_POSITIONS + passRows), LOG_BLOCK_POSITIONS) + 1;
    return (
      rowFloats * (logBlocks + SPARE_LOG_BLOCKS) * LOG_BLOCK_POSITIONS +
      2 * recurrentStateFloats(mixer, shape.hiddenSize)
    );
  });
  return floats.reduce((sum, count) => sum + count, 0) * FLOAT_BYTES;
}

function blocksOf(positions: number, blockPositions: number): number {
  return Math.ceil(positions / blockPositions);
}
