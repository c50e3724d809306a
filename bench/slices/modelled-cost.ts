/**
 * Modelled energy and time of decode steps on a profiled device (SliceMoE, section 5). Expert weights come from the link on a miss, and are
 * written to memory; every weight that a step uses is read from memory. All but routed experts has INT8 weights in groups of 128, and INT8 keys and
 * values, as in section 6.1.
 */
import {
  attendedPositions,
  type ContextWork,
  FLOAT_BYTES,
  layersWork,
  vocabularyWeights,
} from '../../engine/emulation/layer-arithmetic.js';
import type { ProfiledDevice, ProfiledEnergy } from '../../engine/emulation/device-profile.js';
import { expertMatrixValues, type ModelShape } from '../../shared/model/model-shape.js';
import type { LayerTally } from '../../simulator/slices/replay-scores.js';
import type { SliceSizes } from '../../shared/decisions/slices/displace-slices.js';
import type { SlicePair } from './quantize-group.js';

const BITS = 8;
/** An FP16 scale for each group of 128 weights. */
const DENSE_WEIGHT_BITS = 8 + 16 / 128;
/** An FP16 scale and a zero for each group of 32 weights, in the upper slice. */
const GROUP_BITS = (16 + 8) / 32;
const PRODUCT_OPERATIONS = 2;
const PJ_OF_MJ = 1e9;
const MS_OF_S = 1000;

interface Work {
  readonly linkBits: number;
  readonly memoryBits: number;
  readonly operations: number;
}

export interface ModelledCost {
  readonly mj: number;
  /** Link, memory and arithmetic one after the other. */
  readonly serialMs: number;
  /** The longest of the three for each layer's experts, and for all else. */
  readonly overlappedMs: number;
}

export function sliceSizesOf(shape: ModelShape, { high, low }: SlicePair): SliceSizes {
  const weights = expertMatrixValues(shape);
  return { upperBytes: (weights * (low + GROUP_BITS)) / BITS, lowerBytes: (weights * (high - low)) / BITS };
}

export type StepCost = (tallies: readonly LayerTally[], position: number) => ModelledCost;

/** `sizes`: slices that low executions (the upper one) and high ones (both) read. */
export function stepCosts(
  shape: ModelShape,
  sizes: SliceSizes,
  device: ProfiledDevice,
  energy: ProfiledEnergy,
): StepCost {
  const denseAt = denseWork(shape);
  return (tallies, position) => {
    const works = [denseAt(position), ...tallies.map((tally) => expertsWork(shape, sizes, tally))];
    return costOf(works, device, energy);
  };
}

function costOf(works: readonly Work[], device: ProfiledDevice, energy: ProfiledEnergy): ModelledCost {
  let [mj, serialMs, overlappedMs] = [0, 0, 0];
  for (const { linkBits, memoryBits, operations } of works) {
    const joules =
      linkBits * energy.linkPjPerBit + memoryBits * energy.memoryPjPerBit + operations * energy.operationPj;
    mj += joules / PJ_OF_MJ;
    const times = [
      linkBits / BITS / device.linkBytesPerS,
      memoryBits / BITS / device.weightBytesPerS,
      operations / device.flopPerS,
    ].map((seconds) => seconds * MS_OF_S);
    serialMs += times.reduce((sum, time) => sum + time, 0);
    overlappedMs += Math.max(...times);
  }
  return { mj, serialMs, overlappedMs };
}

function expertsWork(shape: ModelShape, { upperBytes, lowerBytes }: SliceSizes, tally: LayerTally): Work {
  const executions = tally.low + tally.high;
  const read = executions * upperBytes + tally.high * lowerBytes;
  return {
    linkBits: BITS * tally.fetchedBytes,
    memoryBits: BITS * (tally.fetchedBytes + read),
    operations: PRODUCT_OPERATIONS * executions * expertMatrixValues(shape),
  };
}

/** Everything but routed experts, for one row. */
function denseWork(shape: ModelShape): (position: number) => Work {
  const layers = layersWork(shape);
  const weights = layers.reduce((sum, layer) => sum + layer.weights, vocabularyWeights(shape));
  const contexts = layers.flatMap(({ context }) => context);
  return (position) => {
    const ofContext = (each: (work: ContextWork) => number): number =>
      contexts.reduce((sum, work) => sum + each(work) * attendedPositions(work, position + 1), 0);
    return {
      linkBits: 0,
      memoryBits: weights * DENSE_WEIGHT_BITS + BITS * ofContext((work) => work.positionBytes / FLOAT_BYTES),
      operations: PRODUCT_OPERATIONS * weights + ofContext((work) => work.rowPositionFlop),
    };
  };
}
