import { expertMatrixValues, type ExpertRowShape, expertRowSize, type ModelShape } from '../../model/model-shape.js';
import type { FormatShare } from '../../model/format-shares.js';
import type { ExactFormat } from '../../model/tensor-source.js';
import { isBlockFormat } from '../../model/block-formats.js';
import { rowBytes } from '../../model/weight-dtype.js';

/** Costs of a layer in a cluster. */
export interface LayerCosts {
  /** Time in which a worker executes one expert for one row. */
  executeMs: number;
  /** Time to send a hidden state to a worker and to receive one from it. Main does this for one worker after the other. */
  reachMs: number;
  /** Time in which a worker loads one expert. */
  loadMs: number;
}

export interface GroupSizeChoice {
  /** Workers that share the experts of a layer. */
  size: number;
  /** The reason, as text for people. */
  reason: string;
}

/** Values of a small worker and a gigabit network. Only their order of magnitude matters, so nothing must be measured before workers are grouped. */
const NOMINAL = {
  executeBytesPerS: 50e9,
  executeOverheadMs: 0.2,
  networkBytesPerS: 125e6,
  messageMs: 0.1,
  storageBytesPerS: 2e9,
  loadOverheadMs: 2,
};
const MS_PER_S = 1000;
const FLOAT_BYTES = 4;
/** Bytes of a weight in storage: packs store BF16 in about three quarters of its size. */
const STORED_BYTES = { bf16: 1.5, fp16: 2, fp32: 4, mxfp4: 0.53, fp8: 1 } as const;
const HELD_BYTES = { ...STORED_BYTES, bf16: 2 } as const;
const BLOCK_COLUMNS = 4096;

/** Bytes of a weight of an expert. */
export interface ExpertWeightBytes {
  storedBytes: number;
  heldBytes: number;
}

function weightBytesOf(format: ExactFormat): ExpertWeightBytes {
  if (!isBlockFormat(format)) return { storedBytes: STORED_BYTES[format], heldBytes: HELD_BYTES[format] };
  const bytes = rowBytes(format, BLOCK_COLUMNS) / BLOCK_COLUMNS;
  return { storedBytes: bytes, heldBytes: bytes };
}

/** Bytes of a weight in the mean over the formats of a model's experts. */
export function meanWeightBytes(shares: readonly FormatShare[]): ExpertWeightBytes {
  const mean = { storedBytes: 0, heldBytes: 0 };
  for (const { format, share } of shares) {
    const { storedBytes, heldBytes } = weightBytesOf(format);
    mean.storedBytes += share * storedBytes;
    mean.heldBytes += share * heldBytes;
  }
  return mean;
}

/** Costs of a layer of this model on workers that are not known yet. */
export function nominalLayerCosts(
  shape: ExpertRowShape & Pick<ModelShape, 'expert'>,
  { storedBytes, heldBytes }: ExpertWeightBytes,
): LayerCosts {
  const weights = expertMatrixValues(shape);
  const hiddenBytes = expertRowSize(shape) * FLOAT_BYTES;
  return {
    executeMs: NOMINAL.executeOverheadMs + ((weights * heldBytes) / NOMINAL.executeBytesPerS) * MS_PER_S,
    reachMs: NOMINAL.messageMs + ((2 * hiddenBytes) / NOMINAL.networkBytesPerS) * MS_PER_S,
    loadMs: NOMINAL.loadOverheadMs + ((weights * storedBytes) / NOMINAL.storageBytesPerS) * MS_PER_S,
  };
}

/**
 * Number of workers that share the experts of a layer, chosen so that a token's layer takes the least time. With g workers a layer takes the
 * time to execute ceil(k / g) experts and to reach g workers. It takes at least the time in which all workers together load its k experts. Among
 * sizes with the same time the largest is chosen, because its workers hold the fewest experts at a time. No group has more than k workers.
 */
export function chooseGroupSize(workers: number, expertsPerToken: number, costs: LayerCosts): GroupSizeChoice {
  const { executeMs, reachMs, loadMs } = costs;
  const loadingMs = (expertsPerToken * loadMs) / Math.max(1, workers);
  let best = { size: 1, layerMs: Infinity, runMs: Infinity };
  for (let size = 1; size <= Math.min(workers, expertsPerToken); size += 1) {
    const experts = Math.ceil(expertsPerToken / size);
    // A size that leaves each worker as many experts as the size before only adds a worker to reach.
    if (size > 1 && experts === Math.ceil(expertsPerToken / (size - 1))) continue;
    const runMs = experts * executeMs + size * reachMs;
    const layerMs = Math.max(runMs, loadingMs);
    if (layerMs <= best.layerMs) best = { size, layerMs, runMs };
  }
  const { size, runMs } = best;
  const each = Math.ceil(expertsPerToken / size);
  const runs = `executing ${each} of ${expertsPerToken} experts each and reaching ${size} takes about ${runMs.toFixed(1)} ms a layer`;
  const loads = `loading ${loadingMs.toFixed(1)} ms`;
  const reason = runMs >= loadingMs ? `${runs}, the least of all sizes (${loads})` : `${runs}, no longer than ${loads}`;
  return { size, reason };
}

/** Slots that a worker of a group needs, so that it loads the experts of its next layer while it executes those of this one. */
export function lookAheadSlots(expertsPerToken: number, groupSize: number): number {
  return 2 * Math.ceil(expertsPerToken / Math.max(1, groupSize));
}
