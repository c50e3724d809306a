import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { type DenseRole, denseDimensions, isVectorRole, type DensePlace } from '../../shared/model/dense-roles.js';
import type { LayerShape, ModelShape } from '../../shared/model/model-shape.js';
import type { ExpertMatrix } from '../../shared/model/tensor-source.js';
import { expertDimensions, type NamedPart } from '../model-config/checkpoint-layout.js';
import type { CheckpointLayout, GuessingLayers, StoredTensor, TensorSlice } from '../model-config/model-family.js';
import { layerTensor, type StoredLayer } from './gguf-layout-names.js';

const IN_LAYER = /^blk\.(\d{1,9})\./;
/** Scales of activations, which no product here needs. */
const INPUT_SCALE = /\.input_scale$/;

/**
 * Places of a model's tensors in a GGUF file. The converter names them alike in all architectures; how experts and projections are joined is seen
 * by what tensors there are.
 * @param names of the file's tensors
 */
export function ggufLayout(
  shape: ModelShape,
  names: { has(name: string): boolean },
  guessingLayers: number,
): CheckpointLayout {
  const layers = shape.layers.map((layer, number): StoredLayer => ({
    layer,
    hiddenSize: shape.hiddenSize,
    has: (name) => names.has(`blk.${number}.${name}`),
  }));
  const inLayer = (number: number): StoredLayer =>
    requirePresent(layers[number], () => `the model has a layer ${number}.`);
  return {
    dense: (place) => denseTensor(place, shape, { inLayer, has: (name) => names.has(name) }),
    expert: (part, layer, expert) => expertTensor({ part, expert, layer }, shape, inLayer(layer)),
    expertBias: shape.expert.bias
      ? (part, layer, expert) => {
          const [rows] = expertDimensions(part, shape);
          const named = {
            name: `ffn_${part}_exps.bias`,
            dimensions: [shape.experts, rows],
            slice: { firstRow: expert, blockRows: 1 },
          };
          return stored(named, `blk.${layer}.`, [rows]);
        }
      : null,
    isLeftOut: (name) => INPUT_SCALE.test(name) || guessingLayer(name, shape, guessingLayers) !== null,
    guessing: guessing(shape, guessingLayers),
  };
}

/** Number of the layer behind the last one to which a tensor belongs; null: none, or one that the file does not count. */
function guessingLayer(name: string, { layers }: { layers: readonly LayerShape[] }, count: number): number | null {
  const layer = Number(IN_LAYER.exec(name)?.[1] ?? -1);
  return layer >= layers.length && layer < layers.length + count ? layer : null;
}

/** All tensors of such a layer are left out, whatever they are. */
function guessing(shape: ModelShape, count: number): GuessingLayers {
  return { layerBehindLast: (name) => guessingLayer(name, shape, count), count, isPart: () => true, marks: () => [] };
}

interface FileNames {
  inLayer: (layer: number) => StoredLayer;
  has: (name: string) => boolean;
}

/** Tensors of the whole model. */
const MODEL_TENSORS: Partial<Record<DenseRole, string>> = {
  embedding: 'token_embd.weight',
  finalNormBias: 'output_norm.bias',
  lmHead: 'output.weight',
  lmHeadBias: 'output.bias',
};

function denseTensor(place: DensePlace, shape: ModelShape, { inLayer, has }: FileNames): StoredTensor {
  const { role, layer } = place;
  const { rows, columns } = denseDimensions(place, shape);
  const dimensions = isVectorRole(role) ? [columns] : [rows, columns];
  // LFM2 calls the norm behind the last layer after the embedding.
  const finalNorm = has('output_norm.weight') ? 'output_norm.weight' : 'token_embd_norm.weight';
  const name = role === 'finalNorm' ? finalNorm : MODEL_TENSORS[role];
  if (name !== undefined) return stored({ name }, '', dimensions);
  return stored(layerTensor(role, inLayer(layer)), `blk.${layer}.`, dimensions);
}

interface ExpertPlace {
  part: ExpertMatrix;
  expert: number;
  layer: number;
}

/** All experts of a layer in a tensor for each matrix; gate and up in one, the gate's rows first; or (before April 2024) each expert apart. */
function expertTensor({ part, expert, layer }: ExpertPlace, shape: ModelShape, { has }: StoredLayer): StoredTensor {
  const [rows, columns] = expertDimensions(part, shape);
  const prefix = `blk.${layer}.`;
  if (part !== 'down' && has('ffn_gate_up_exps.weight')) {
    const firstRow = (2 * expert + (part === 'up' ? 1 : 0)) * rows;
    const dimensions = [shape.experts, 2 * rows, columns];
    return stored({ name: 'ffn_gate_up_exps.weight', dimensions, slice: { firstRow, blockRows: rows } }, prefix, []);
  }
  const stack = `ffn_${part}_exps.weight`;
  if (!has(stack) && has(`ffn_${part}.${expert}.weight`)) {
    return stored({ name: `ffn_${part}.${expert}.weight` }, prefix, [rows, columns]);
  }
  const slice = { firstRow: expert * rows, blockRows: rows };
  return stored({ name: stack, dimensions: [shape.experts, rows, columns], slice }, prefix, []);
}

function stored({ name, dimensions, slice }: NamedPart, prefix: string, ofModel: readonly number[]): StoredTensor {
  const sizes = dimensions ?? ofModel;
  const rows = sizes.slice(0, -1).reduce((product, size) => product * size, 1);
  const whole: TensorSlice = {
    firstRow: 0,
    blockRows: rows,
    stepRows: rows,
    firstColumn: 0,
    stepColumns: 1,
    transposed: false,
    multiply: 1,
    add: 0,
  };
  return {
    name: prefix + name,
    dimensions: sizes,
    encoding: 'values',
    slice: slice === undefined ? null : { ...whole, ...slice },
  };
}
