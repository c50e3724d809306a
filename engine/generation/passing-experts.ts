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
import { expertFormats, type ExpertFormats } from '../../shared/model/expert-formats.js';
import { expertRowSize } from '../../shared/model/model-shape.js';
import { allExperts, partSizes, type PartSizes } from '../../shared/model/part-sizes.js';
import type { ExpertSource, ModelSource, SliceReading, WeightFormat } from '../../shared/model/tensor-source.js';
import { openSlicedSource, type ShadowForm } from '../loading/shadow-form.js';
import { executeRows, runLayers } from './run-layers.js';

const SLOT = 0;

/** The experts of a model, each for the time of its executions in a layer. */
export interface PassingExperts {
  /** In the slot: weights that are stored in another format are converted when they are loaded. */
  readonly format: WeightFormat;
  /** As in ExpertShape. */
  readonly shipped?: readonly ExpertFormats[];
  readonly sizes: PartSizes;
  /** The reading of every execution; undefined: experts are not sliced. */
  readonly reading?: SliceReading | undefined;
  /** The source is used before the next one is asked for. */
  readonly source: (layer: number, expert: number) => ExpertSource | Promise<ExpertSource>;
}

/** A model's experts in another format, such as the one in which they are shipped. */
export function expertsIn(format: WeightFormat, source: ModelSource): PassingExperts {
  const sizes = partSizes(allExperts(source));
  return {
    format,
    shipped: expertFormats(allExperts(source)),
    sizes,
    source: (layer, expert) => source.expert(layer, expert),
  };
}

export interface PassingVisitor {
  /** A layer's router has chosen. `hidden`: the input of its experts, rows x expertRowSize FP32; it is overwritten by the next layer's. */
  routed(layer: number, choice: RouterChoice, hidden: Uint8Array): void;
  /** Called before each load. It may throw. */
  beforeLoad?(): void;
}

/**
 * Runs the tokens of some sequences in one pass. `model`: on the device, with its dense weights.
 * @throws DEVICE_OUT_OF_MEMORY, PACK_CORRUPT, MODEL_CORRUPT, STORAGE_FAILED
 */
export async function runPassingExperts(
  device: Device,
  model: Model,
  { format, shipped, sizes, reading, source }: PassingExperts,
  inputs: readonly (readonly number[])[],
  visitor: PassingVisitor,
): Promise<void> {
  const { shape } = model;
  const { expert: glu, expertsPerToken } = shape;
  const hiddenSize = expertRowSize(shape);
  const ids = Int32Array.from(inputs.flat());
  const loader = { ...PLAIN_LOADER, ...sizes };
  const slots = device.createExpertSlots(
    { hiddenSize, glu, format, ...(shipped === undefined ? {} : { shipped }) },
    1,
    ids.length,
    loader,
  );
  const sequences: Sequence[] = [];
  try {
    if (reading !== undefined) slots.takeLower(SLOT);
    const pass = model.createPass(ids.length);
    try {
      inputs.forEach(() => sequences.push(model.createSequence()));
      const rowSequence = Int32Array.from(inputs.flatMap((some, sequence) => some.map(() => sequence)));
      const positions = Int32Array.from(inputs.flatMap((some) => [...some.keys()]));
      await pass.begin(sequences, rowSequence, positions, ids);
      await runLayers(pass, shape, ids.length, async (layer, choice, buffers) => {
        visitor.routed(layer, choice, buffers.hidden);
        const readings = reading === undefined ? [] : Array.from(choice.experts, () => reading);
        for (const [expert, rows] of activatedExperts(choice.experts, expertsPerToken, readings)) {
          visitor.beforeLoad?.();
          await slots.load(SLOT, slots.register(await source(layer, expert)), FROM_STORAGE);
          await executeRows(slots, SLOT, rows, buffers, shape);
        }
        return choice.weights;
      });
    } finally {
      for (const sequence of sequences) sequence.dispose();
      pass.dispose();
    }
  } finally {
    slots.dispose();
  }
}

/**
 * Gives `use` the experts of a shadow, to be loaded each for the time of its executions, as the shadow would hold it.
 * @throws as loadShadowWeights
 */
export async function withShadowExperts<Result>(
  source: ModelSource,
  { format, sliced }: ShadowForm,
  use: (experts: PassingExperts) => Promise<Result>,
): Promise<Result> {
  if (sliced === null) return await use(expertsIn(format, source));
  const { split, reading } = sliced;
  const slices = await openSlicedSource(source, sliced);
  try {
    // All experts of a model have one shape, and their slices are raw, so they have one size.
    const sizes = partSizes([await slices.expert(0, 0)]);
    return await use({
      format: split,
      sizes,
      reading,
      source: async (layer, expert) => slices.expert(layer, expert),
    });
  } finally {
    await slices.close?.();
  }
}
