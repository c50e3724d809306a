import { requirePresent } from '../errors/assert-invariant.js';
import { denseDimensions, isVectorRole, type DensePlace, type DenseRole } from './dense-roles.js';
import type { CheckpointLayout, ExpertPart, StoredTensor, TensorSlice } from './model-family.js';
import type { LayerShape, ModelShape } from './model-shape.js';

/** A tensor under its name, or a part of one. Names of layers' tensors begin behind "layers.N.". */
export type NamedTensor = string | Omit<StoredTensor, 'encoding'>;

/** What names depend on. */
export interface NamedLayer {
  layer: LayerShape;
  shape: ModelShape;
}

/** How a family names its tensors. */
export interface TensorNames {
  /** Before every name of the text model but the head's: "model.". */
  prefix: string;
  model: { embedding: string; finalNorm: string; finalNormBias?: string; lmHead: string; lmHeadBias?: string };
  /** Of roles that a layer may have; a function where the name depends on the layer. */
  layer: Partial<Record<DenseRole, NamedTensor | ((context: NamedLayer) => NamedTensor)>>;
  expert(part: ExpertPart, expert: number, context: NamedLayer): NamedTensor | StoredTensor;
  expertBias?: (part: ExpertPart, expert: number, context: NamedLayer) => NamedTensor;
  /** Names of tensors that are not needed for text. */
  leftOut?: readonly RegExp[];
  /** Layers behind the last one only guess tokens ahead. */
  layersBehindLast?: boolean;
}

/** Tables that are computed anyway. */
const COMPUTED = /\.rotary_emb\.(inv_freq|cos_cached|sin_cached)$/;

/** Where the tensors of a model stand, by a family's names. */
export function checkpointLayout(shape: ModelShape, names: TensorNames, tiedEmbeddings: boolean): CheckpointLayout {
  const inLayer = (layer: number): string => `${names.prefix}layers.${layer}.`;
  const layerShape = (layer: number): LayerShape =>
    requirePresent(shape.layers[layer], () => `the model has a layer ${layer}.`);
  const { expertBias } = names;
  return {
    dense: (place) => denseTensor(place, shape, names),
    expert: (part, layer, expert) => {
      const named = names.expert(part, expert, { layer: layerShape(layer), shape });
      return stored(named, inLayer(layer), expertDimensions(part, shape));
    },
    expertBias:
      expertBias === undefined
        ? null
        : (part, layer, expert) => {
            const named = expertBias(part, expert, { layer: layerShape(layer), shape });
            return stored(named, inLayer(layer), [expertDimensions(part, shape)[0]]);
          },
    isLeftOut: (name) =>
      COMPUTED.test(name) ||
      (tiedEmbeddings && name === names.model.lmHead) ||
      (names.layersBehindLast === true && layerOf(name, names.prefix) >= shape.layers.length) ||
      (names.leftOut ?? []).some((pattern) => pattern.test(name)),
  };
}

/** Rows and columns of an expert's matrix. */
export function expertDimensions(part: ExpertPart, shape: ModelShape): readonly [number, number] {
  const { intermediateSize } = shape.expert;
  return part === 'down' ? [shape.hiddenSize, intermediateSize] : [intermediateSize, shape.hiddenSize];
}

function denseTensor(place: DensePlace, shape: ModelShape, names: TensorNames): StoredTensor {
  const { role, layer } = place;
  const { rows, columns } = denseDimensions(place, shape);
  const dimensions = isVectorRole(role) ? [columns] : [rows, columns];
  const { lmHead, lmHeadBias, ...ofModel } = names.model;
  if (role === 'lmHead') return stored(lmHead, '', dimensions);
  if (role === 'lmHeadBias') return stored(requireName(lmHeadBias, place), '', dimensions);
  if (role === 'embedding' || role === 'finalNorm' || role === 'finalNormBias') {
    return stored(requireName(ofModel[role], place), names.prefix, dimensions);
  }
  const named = requireName(names.layer[role], place);
  const layerShape = requirePresent(shape.layers[layer], () => `the model has a layer ${layer}.`);
  const tensor = typeof named === 'function' ? named({ layer: layerShape, shape }) : named;
  return stored(tensor, `${names.prefix}layers.${layer}.`, dimensions);
}

function requireName<T>(named: T | undefined, { role, layer }: DensePlace): T {
  return requirePresent(named, () => `the family names ${role}, which layer ${layer} of its model has.`);
}

function stored(named: NamedTensor | StoredTensor, before: string, dimensions: readonly number[]): StoredTensor {
  if (typeof named === 'string') return { name: before + named, dimensions, encoding: 'values', slice: null };
  return { encoding: 'values', ...named, name: before + named.name };
}

/** Number of the layer that a tensor belongs to; -1: none. */
function layerOf(name: string, prefix: string): number {
  const start = `${prefix}layers.`;
  const number = name.startsWith(start) ? /^\d+(?=\.)/.exec(name.slice(start.length)) : null;
  return number === null ? -1 : Number(number[0]);
}

/** All rows and columns of a stored matrix but for their number. */
export const WHOLE: TensorSlice = {
  ...{ firstRow: 0, blockRows: 0, stepRows: 0, firstColumn: 0, stepColumns: 1 },
  ...{ transposed: false, multiply: 1, add: 0 },
};
