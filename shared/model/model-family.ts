import type { DenseRole, ModelShape } from './tensor-source.js';

/** One of the three matrices of an expert. */
export type ExpertPart = 'gate' | 'up' | 'down';
export const EXPERT_PARTS: readonly ExpertPart[] = ['gate', 'up', 'down'];

/** What a tensor is for. `layer` is 0 for dense roles that have none. */
export type TensorPlace =
  | { kind: 'dense'; role: DenseRole; layer: number }
  | { kind: 'expert'; part: ExpertPart; layer: number; expert: number };

/** A tensor that a checkpoint must hold. */
export interface ExpectedTensor {
  name: string;
  place: TensorPlace;
  /** rows x columns, or the length of a vector. */
  dimensions: readonly number[];
}

/** What config.json says. */
export interface ModelConfig {
  shape: ModelShape;
  tiedEmbeddings: boolean;
  eosTokenIds: readonly number[];
}

/** How the checkpoints of one architecture are written: its config.json and the names of its tensors. */
export interface ModelFamily {
  readonly name: string;
  /** Members of config.json's `architectures` that it reads. */
  readonly architectures: readonly string[];
  /** @throws MODEL_CORRUPT, MODEL_UNSUPPORTED */
  readConfig(config: Readonly<Record<string, unknown>>, path: string): ModelConfig;
  /** Every tensor of a checkpoint, in the order of a forward pass. */
  expectedTensors(config: ModelConfig): Iterable<ExpectedTensor>;
  /** Tensors that may be there and mean nothing, such as tables that are computed anyway. */
  isRedundantTensor(name: string, config: ModelConfig): boolean;
}

/** Rows and columns of a dense tensor; a vector is one row. */
export function denseDimensions(role: DenseRole, shape: ModelShape): readonly number[] {
  const queryRows = shape.heads * shape.headDim;
  const keyValueRows = shape.keyValueHeads * shape.headDim;
  switch (role) {
    case 'embedding':
    case 'lmHead':
      return [shape.vocabSize, shape.hiddenSize];
    case 'finalNorm':
    case 'attentionNorm':
    case 'expertNorm':
      return [shape.hiddenSize];
    case 'query':
      return [queryRows, shape.hiddenSize];
    case 'key':
    case 'value':
      return [keyValueRows, shape.hiddenSize];
    case 'attentionOutput':
      return [shape.hiddenSize, queryRows];
    case 'gate':
      return [shape.experts, shape.hiddenSize];
  }
}

/** Rows and columns of an expert's matrix. */
export function expertDimensions(part: ExpertPart, shape: ModelShape): readonly [number, number] {
  return part === 'down' ? [shape.hiddenSize, shape.intermediateSize] : [shape.intermediateSize, shape.hiddenSize];
}

/** Roles that every layer has. */
export const LAYER_ROLES: readonly DenseRole[] = [
  'attentionNorm',
  'query',
  'key',
  'value',
  'attentionOutput',
  'expertNorm',
  'gate',
];

/** Every dense (role, layer) of a model, in the order of a forward pass; no lmHead with tied embeddings. */
export function* densePlaces(
  shape: ModelShape,
  tiedEmbeddings: boolean,
): Generator<{ role: DenseRole; layer: number }> {
  yield { role: 'embedding', layer: 0 };
  for (let layer = 0; layer < shape.layers; layer += 1) {
    for (const role of LAYER_ROLES) yield { role, layer };
  }
  yield { role: 'finalNorm', layer: 0 };
  if (!tiedEmbeddings) yield { role: 'lmHead', layer: 0 };
}
