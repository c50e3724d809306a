/** Runs a model with one slot for its experts: each is loaded for its layer and then makes room for the next one. */
import {
  FROM_STORAGE,
  PLAIN_LOADER,
  type Device,
  type Model,
  type RouterChoice,
  type Sequence,
} from '../../native/index.js';
import { activatedExperts } from '../../shared/decisions/placement/activated-experts.js';
import { allExperts, partSizes } from '../../shared/model/part-sizes.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { executeRows, runLayers } from './run-layers.js';

const SLOT = 0;

export interface PassingVisitor {
  /** A layer's router has chosen. `hidden`: the input of its experts, rows x hiddenSize FP32; it is overwritten by the next layer's. */
  routed(layer: number, choice: RouterChoice, hidden: Uint8Array): void;
  /** Called before each load. It may throw. */
  beforeLoad?(): void;
}

/**
 * Runs the tokens of some sequences in one pass, exactly. `model`: on the device, with its dense weights.
 * @throws DEVICE_OUT_OF_MEMORY, PACK_CORRUPT, MODEL_CORRUPT, STORAGE_FAILED
 */
export async function runPassingExperts(
  device: Device,
  model: Model,
  source: ModelSource,
  inputs: readonly (readonly number[])[],
  visitor: PassingVisitor,
): Promise<void> {
  const { shape, shippedFormat: format } = source;
  const { hiddenSize, expert: glu, expertsPerToken } = shape;
  const ids = Int32Array.from(inputs.flat());
  const loader = { ...PLAIN_LOADER, ...partSizes(allExperts(source)) };
  const slots = device.createExpertSlots({ hiddenSize, glu, format }, 1, ids.length, loader);
  const sequences: Sequence[] = [];
  try {
    const pass = model.createPass(ids.length);
    try {
      inputs.forEach(() => sequences.push(model.createSequence()));
      const rowSequence = Int32Array.from(inputs.flatMap((some, sequence) => some.map(() => sequence)));
      const positions = Int32Array.from(inputs.flatMap((some) => [...some.keys()]));
      await pass.begin(sequences, rowSequence, positions, ids);
      await runLayers(pass, shape, ids.length, async (layer, choice, buffers) => {
        visitor.routed(layer, choice, buffers.hidden);
        for (const [expert, rows] of activatedExperts(choice.experts, expertsPerToken)) {
          visitor.beforeLoad?.();
          await slots.load(SLOT, slots.register(source.expert(layer, expert)), FROM_STORAGE);
          await executeRows(slots, SLOT, rows, buffers, shape);
        }
      });
    } finally {
      for (const sequence of sequences) sequence.dispose();
      pass.dispose();
    }
  } finally {
    slots.dispose();
  }
}
