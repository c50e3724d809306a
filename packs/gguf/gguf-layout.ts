import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { type DenseRole, denseDimensions, isVectorRole } from '../../shared/model/dense-roles.js';
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
export function ggufLayout(shape: ModelShape, names: FileNames, guessingLayers: number): CheckpointLayout {
  const model: FileLayers = { names, firstLayer: 0 };
  return {
    ...tensorPlaces(shape, model),
    isLeftOut: (name) => INPUT_SCALE.test(name) || guessingLayer(name, shape, guessingLayers) !== null,
    guessing: guessing(shape, guessingLayers),
  };
}

/** Places of the tensors of a head that drafts, which is the layer of this number. */
export function ggufHeadLayout(shape: ModelShape, names: FileNames, firstLayer: number): CheckpointLayout {
  return { ...tensorPlaces(shape, { names, firstLayer }), isLeftOut: () => false, guessing: guessing(shape, 0) };
}

function tensorPlaces(shape: ModelShape, file: FileLayers): Pick<CheckpointLayout, 'dense' | 'expert' | 'expertBias'> {
  const prefixOf = (layer: number): string => `blk.${file.firstLayer + layer}.`;
  const layers = shape.layers.map((layer, number): StoredLayer => ({
    layer,
    hiddenSize: shape.hiddenSize,
    has: (name) => file.names.has(prefixOf(number) + name),
  }));
  const inLayer = (number: number): StoredLayer =>
    requirePresent(layers[number], () => `the model has a layer ${number}.`);
  return {
    dense: (place) => {
      const { role, layer } = place;
      const { rows, columns } = denseDimensions(place, shape);
      const dimensions = isVectorRole(role) ? [columns] : [rows, columns];
      const name = shape.draftHead === undefined ? modelTensor(role, file) : headTensor(role, file);
      if (name !== null) return stored({ name }, '', dimensions);
      return stored(layerTensor(role, inLayer(layer)), prefixOf(layer), dimensions);
    },
    expert: (part, layer, expert) => expertTensor({ part, expert }, shape, inLayer(layer), prefixOf(layer)),
    expertBias: shape.expert.bias
      ? (part, layer, expert) => {
          const [rows] = expertDimensions(part, shape);
          const named = {
            name: `ffn_${part}_exps.bias`,
            dimensions: [shape.experts, rows],
            slice: { firstRow: expert, blockRows: 1 },
          };
          return stored(named, prefixOf(layer), [rows]);
        }
      : null,
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

/** Names of the file's tensors. */
interface FileNames {
  has(name: string): boolean;
}

/** The layers of a file from one on. */
interface FileLayers {
  names: FileNames;
  firstLayer: number;
}

/** Tensors of the whole model. */
const MODEL_TENSORS: Partial<Record<DenseRole, string>> = {
  embedding: 'token_embd.weight',
  finalNormBias: 'output_norm.bias',
  lmHead: 'output.weight',
  lmHeadBias: 'output.bias',
};

/** The name of a tensor of the whole model; null: the role is that of a layer's tensor. */
function modelTensor(role: DenseRole, { names }: FileLayers): string | null {
  // LFM2 calls the norm behind the last layer after the embedding.
  if (role === 'finalNorm') return names.has('output_norm.weight') ? 'output_norm.weight' : 'token_embd_norm.weight';
  return MODEL_TENSORS[role] ?? null;
}

/** Tensors of a head that are not of its layer; names begin behind "blk.N.". */
const HEAD_TENSORS: Partial<Record<DenseRole, string>> = {
  embedding: 'nextn.embed_tokens.weight',
  tokenNorm: 'nextn.enorm.weight',
  stateNorm: 'nextn.hnorm.weight',
  draftInput: 'nextn.eh_proj.weight',
  finalNorm: 'nextn.shared_head_norm.weight',
  lmHead: 'nextn.shared_head_head.weight',
};

/** As modelTensor, of a head. One without a final norm has the model's. */
function headTensor(role: DenseRole, file: FileLayers): string | null {
  const own = HEAD_TENSORS[role];
  if (own === undefined) return null;
  const name = `blk.${file.firstLayer}.${own}`;
  return role === 'finalNorm' && !file.names.has(name) ? modelTensor(role, file) : name;
}

interface ExpertPlace {
  part: ExpertMatrix;
  expert: number;
}

/** All experts of a layer in a tensor for each matrix; gate and up in one, the gate's rows first; or (before April 2024) each expert apart. */
function expertTensor(
  { part, expert }: ExpertPlace,
  shape: ModelShape,
  { has }: StoredLayer,
  prefix: string,
): StoredTensor {
  const [rows, columns] = expertDimensions(part, shape);
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
