import { EXPERT_MATRICES, type ExpertMatrix } from '../../shared/model/tensor-source.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import {
  DENSE_ROLES,
  denseDimensions,
  densePlaces,
  isVectorRole,
  type DensePlace,
  type DenseRole,
} from '../../shared/model/dense-roles.js';
import type { CheckpointLayout, GuessingLayers, StoredTensor, TensorSlice } from './model-family.js';
import { expertRowSize, gateRows, type LayerShape, type ModelShape } from '../../shared/model/model-shape.js';

/** A tensor by its name, or a part of one. Fields that are left out are those of the whole tensor. Names in a layer begin behind "layers.N.". */
export type NamedTensor = string | NamedPart;

export interface NamedPart {
  name: string;
  dimensions?: readonly number[];
  encoding?: StoredTensor['encoding'];
  slice?: Partial<TensorSlice>;
}

/** The layer and the model on which a name may depend. */
export interface NamedLayer {
  layer: LayerShape;
  shape: ModelShape;
}

/** A tensor of a layer, or a function of the layer if the name depends on it. */
export type LayerTensor = NamedTensor | ((context: NamedLayer) => NamedTensor);

/** The names of a family's tensors. */
export interface TensorNames {
  /** Prefix of every name of the text model, except the head's: "model.". */
  prefix: string;
  model: {
    embedding: string;
    finalNorm: NamedTensor;
    finalNormBias?: string;
    lmHead: string;
    lmHeadBias?: string;
    tokenNorm?: NamedTensor;
    stateNorm?: NamedTensor;
    draftInput?: NamedTensor;
    finalStreamMap?: NamedTensor;
    finalStreamScale?: NamedTensor;
    finalStreamBase?: NamedTensor;
  };
  /** Number of the first layer in names; left out: 0. */
  firstLayer?: number;
  /** Numbers in names of each layer's mixer and of its feed-forward part, where these are layers of their own. */
  numbers?: readonly { mixer: number; feedForward: number }[];
  /** Tensors by tensor role. A layer has only some of them. */
  layer: Partial<Record<DenseRole, LayerTensor>>;
  expert(part: ExpertMatrix, expert: number, context: NamedLayer): NamedTensor;
  expertBias?: (part: ExpertMatrix, expert: number, context: NamedLayer) => NamedTensor;
  /** Names of tensors that are not needed for text. */
  leftOut?: readonly RegExp[];
  /** Layers behind the last one that only guess tokens ahead. */
  guessingLayers?: number;
}

/** Tables that our code computes itself. */
const COMPUTED = /\.rotary_emb\.(inv_freq|cos_cached|sin_cached)$/;

/** The places of a model's tensors, by a family's names. */
export function checkpointLayout(shape: ModelShape, names: TensorNames, tiedEmbeddings: boolean): CheckpointLayout {
  const inLayer = (layer: number): string => layerPrefix(names, layer, true);
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
      (names.leftOut ?? []).some((pattern) => pattern.test(name)),
    guessing: guessingLayers(shape, names),
  };
}

/** Ends of the names of a quantized module's tensors, which stand for its weight. */
const QUANTIZED_PARTS =
  /\.(weight_(packed|scale|scale_inv|scale_2|global_scale|zero_point|g_idx|shape)|qweight|qzeros|scales|g_idx|input_(global_)?scale)$/;

/** Tensors of a layer that guesses tokens ahead, in addition to those of any layer. */
const GUESSING_MARKS = ['eh_proj.weight', 'enorm.weight', 'hnorm.weight'] as const;
const GUESSING_PARTS: readonly string[] = [
  ...GUESSING_MARKS,
  'embed_tokens.weight',
  'shared_head.norm.weight',
  'shared_head.head.weight',
  'transformer.shared_head.norm.weight',
  'transformer.shared_head.output.weight',
  'final_layernorm.weight',
];

function guessingLayers(shape: ModelShape, names: TensorNames): GuessingLayers {
  let parts: ReadonlySet<string> | null = null;
  return {
    layerBehindLast: (name) => {
      const layer = layerOf(name, names.prefix);
      return layer >= layersInNames(shape, names) ? layer : null;
    },
    count: names.guessingLayers ?? 0,
    isPart: (name) => {
      parts ??= new Set([...GUESSING_PARTS, ...layerParts(shape, names)].map(withoutNumbers));
      const part = name.slice(`${names.prefix}layers.${layerOf(name, names.prefix)}.`.length);
      return parts.has(withoutNumbers(part.replace(QUANTIZED_PARTS, '.weight')));
    },
    marks: (layer) => GUESSING_MARKS.map((mark) => `${names.prefix}layers.${layer}.${mark}`),
  };
}

/** Names, within their layer, of the tensors that a model's layers have. Only the first expert is included. */
function layerParts(shape: ModelShape, names: TensorNames): string[] {
  const roles = [...densePlaces(shape, true)].filter(({ role }) => names.layer[role] !== undefined);
  const dense = roles.map((place) => denseTensor(place, shape, names).name.slice(`${names.prefix}layers.`.length));
  const experts = EXPERT_MATRICES.flatMap((part) =>
    shape.layers.map((layer) => nameOf(names.expert(part, 0, { layer, shape }))),
  );
  return [...dense.map((name) => name.replace(/^\d+\./, '')), ...experts];
}

function withoutNumbers(name: string): string {
  return name.replaceAll(/(?<=\.)\d+(?=\.)/g, '*');
}

function nameOf(named: NamedTensor): string {
  return typeof named === 'string' ? named : named.name;
}

/** Rows and columns of an expert's matrix. */
export function expertDimensions(part: ExpertMatrix, shape: ModelShape): readonly [number, number] {
  const rowSize = expertRowSize(shape);
  const { expert } = shape;
  return part === 'down' ? [rowSize, expert.intermediateSize] : [gateRows(expert), rowSize];
}

function denseTensor(place: DensePlace, shape: ModelShape, names: TensorNames): StoredTensor {
  const { role, layer } = place;
  const { rows, columns } = denseDimensions(place, shape);
  const dimensions = isVectorRole(role) ? [columns] : [rows, columns];
  const { lmHead, lmHeadBias, ...ofModel } = names.model;
  if (role === 'lmHead') return stored(lmHead, '', dimensions);
  if (role === 'lmHeadBias') return stored(requireName(lmHeadBias, place), '', dimensions);
  if (isModelRole(role)) return stored(requireName(ofModel[role], place), names.prefix, dimensions);
  const named = requireName(names.layer[role], place);
  const layerShape = requirePresent(shape.layers[layer], () => `the model has a layer ${layer}.`);
  const tensor = typeof named === 'function' ? named({ layer: layerShape, shape }) : named;
  return stored(tensor, layerPrefix(names, layer, FEED_FORWARD_ROLES.has(role)), dimensions);
}

/** Roles of what stands behind the mixer of a layer. */
const FEED_FORWARD_ROLES: ReadonlySet<DenseRole> = new Set<DenseRole>([
  ...(['feedForwardNorm', 'feedForwardNormBias', 'routedNorm', 'routerNorm', 'alwaysOutputNorm'] as const),
  ...(['routedOutputNorm', 'feedForwardOutputNorm', 'layerScale', 'alwaysGate', 'alwaysUp', 'alwaysDown'] as const),
  ...(['alwaysWeight', 'router', 'routerBias', 'choiceBias', 'expertScale', 'tokenExperts'] as const),
  ...(['feedForwardStreamMap', 'feedForwardStreamScale', 'feedForwardStreamBase'] as const),
]);

function layerPrefix({ prefix, firstLayer = 0, numbers }: TensorNames, layer: number, feedForward: boolean): string {
  const own = numbers?.[layer];
  const number = own === undefined ? layer : feedForward ? own.feedForward : own.mixer;
  return `${prefix}layers.${firstLayer + number}.`;
}

/** Number of the checkpoint's layers that the model has. */
function layersInNames(shape: ModelShape, { numbers }: TensorNames): number {
  const last = numbers?.at(-1);
  return last === undefined ? shape.layers.length : Math.max(last.mixer, last.feedForward) + 1;
}

type NamedOfModel = Omit<TensorNames['model'], 'lmHead' | 'lmHeadBias'>;

/** True for the roles of tensors of the whole model. */
function isModelRole(role: DenseRole): role is DenseRole & keyof NamedOfModel {
  return DENSE_ROLES[role].startsWith('model');
}

function requireName<T>(named: T | undefined, { role, layer }: DensePlace): T {
  return requirePresent(named, () => `the family names ${role}, which layer ${layer} of its model has.`);
}

function stored(named: NamedTensor, before: string, ofModel: readonly number[]): StoredTensor {
  const { name, dimensions, encoding, slice }: NamedPart = typeof named === 'string' ? { name: named } : named;
  const stored = dimensions ?? ofModel;
  const rows = stored.slice(0, -1).reduce((product, size) => product * size, 1);
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
    name: before + name,
    dimensions: stored,
    encoding: encoding ?? 'values',
    slice: slice === undefined ? null : { ...whole, ...slice },
  };
}

/** Number of the layer to which a tensor belongs; -1: none. */
function layerOf(name: string, prefix: string): number {
  const start = `${prefix}layers.`;
  const number = name.startsWith(start) ? /^\d+(?=\.)/.exec(name.slice(start.length)) : null;
  return number === null ? -1 : Number(number[0]);
}
