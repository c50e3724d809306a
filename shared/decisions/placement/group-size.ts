import type { GluShape, ModelShape } from '../../model/model-shape.js';
import type { ExactFormat } from '../../model/tensor-source.js';

/** What a layer costs a cluster. */
export interface LayerCosts {
  /** A worker executes one expert for one row. */
  executeMs: number;
  /** A worker is sent a hidden state and sends one back: main does this for one worker after the other. */
  reachMs: number;
  /** A worker loads one expert. */
  loadMs: number;
}

export interface GroupSizeChoice {
  /** Workers that share the experts of a layer. */
  size: number;
  /** Why, for people. */
  reason: string;
}

/** Of a small worker and a gigabit network. Only their order of magnitude decides, so that nothing need be measured before workers are grouped. */
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
/** Of a weight as it is kept in storage: packs store BF16 in about three quarters of its size. */
const STORED_BYTES: Record<ExactFormat, number> = { bf16: 1.5, fp16: 2, fp32: 4, mxfp4: 0.53, fp8: 1 };
const HELD_BYTES: Record<ExactFormat, number> = { bf16: 2, fp16: 2, fp32: 4, mxfp4: 0.53, fp8: 1 };

/** What a layer of such a model costs workers of which nothing is known. */
export function nominalLayerCosts(
  { hiddenSize, expert }: Pick<ModelShape, 'hiddenSize' | 'expert'>,
  format: ExactFormat,
): LayerCosts {
  const weights = expertWeights(hiddenSize, expert);
  const hiddenBytes = hiddenSize * FLOAT_BYTES;
  return {
    executeMs: NOMINAL.executeOverheadMs + ((weights * HELD_BYTES[format]) / NOMINAL.executeBytesPerS) * MS_PER_S,
    reachMs: NOMINAL.messageMs + ((2 * hiddenBytes) / NOMINAL.networkBytesPerS) * MS_PER_S,
    loadMs: NOMINAL.loadOverheadMs + ((weights * STORED_BYTES[format]) / NOMINAL.storageBytesPerS) * MS_PER_S,
  };
}

function expertWeights(hiddenSize: number, { intermediateSize }: GluShape): number {
  return 3 * hiddenSize * intermediateSize;
}

/**
 * How many workers share the experts of a layer, so that a token's layer takes the least time. With g of them a layer takes what executing
 * ceil(k / g) experts and reaching g workers takes, and no less than all workers together need to load its k experts. Of sizes that
 * take equally long the largest: each of its workers holds the fewest experts at a time. No group has more than k.
 */
export function chooseGroupSize(workers: number, expertsPerToken: number, costs: LayerCosts): GroupSizeChoice {
  const { executeMs, reachMs, loadMs } = costs;
  const loadingMs = (expertsPerToken * loadMs) / Math.max(1, workers);
  let best = { size: 1, layerMs: Infinity, runMs: Infinity };
  for (let size = 1; size <= Math.min(workers, expertsPerToken); size += 1) {
    const experts = Math.ceil(expertsPerToken / size);
    // A size that gives nobody less to do than the one before it only reaches more workers.
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

/** Experts that a worker of a group needs room for, so that it loads those of its next layer while it executes those of this one. */
export function lookAheadSlots(expertsPerToken: number, groupSize: number): number {
  return 2 * Math.ceil(expertsPerToken / Math.max(1, groupSize));
}
