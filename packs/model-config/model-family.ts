import type { ExplainedKeys } from './explained-keys.js';
import type { ConfigReader, Quantization } from './config-reader.js';
import type { DensePlace } from '../../shared/model/dense-roles.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { TensorView } from '../../shared/model/tensor-source.js';

/** One of the three matrices of an expert. */
export type ExpertPart = 'gate' | 'up' | 'down';
export const EXPERT_PARTS: readonly ExpertPart[] = ['gate', 'up', 'down'];

/** What a tensor is for. `layer` of a dense place counts all layers, that of an expert expert layers. */
export type TensorPlace =
  ({ kind: 'dense' } & DensePlace) | { kind: 'expert'; part: ExpertPart; layer: number; expert: number };

/** What a view takes of a stored matrix (TensorView says what the members mean). */
export type TensorSlice = Pick<
  TensorView,
  'firstRow' | 'blockRows' | 'stepRows' | 'firstColumn' | 'stepColumns' | 'transposed' | 'multiply' | 'add'
>;

/** Where a checkpoint has what is needed. */
export interface StoredTensor {
  name: string;
  /** Of the stored tensor. MXFP4: of its values; they stand in NAME_blocks and NAME_scales. */
  dimensions: readonly number[];
  encoding: 'values' | 'mxfp4';
  /** null: all of it, as it is. */
  slice: TensorSlice | null;
}

/** A tensor that a checkpoint must hold, or be able to give. */
export interface ExpectedTensor extends StoredTensor {
  place: TensorPlace;
}

/** Where the tensors of a checkpoint with a certain config.json stand. */
export interface CheckpointLayout {
  dense(place: DensePlace): StoredTensor;
  /** Layers of experts and of their biases count all layers. */
  expert(part: ExpertPart, layer: number, expert: number): StoredTensor;
  /** null: experts have no biases. */
  expertBias: ((part: ExpertPart, layer: number, expert: number) => StoredTensor) | null;
  /** Tensors that may be there and are not needed for text: other towers, tables that are computed anyway. */
  isLeftOut(name: string): boolean;
  /** Layers behind the last one that only guess tokens ahead. */
  guessing: GuessingLayers;
}

export interface GuessingLayers {
  /** Number of the layer that a tensor belongs to, where the model has no such layer; null: it belongs to none. */
  layerBehindLast(name: string): number | null;
  /** How many there are, as config.json says. */
  count: number;
  /** Name of a tensor within its layer, if such a layer may have it. */
  isPart(name: string): boolean;
  /** Names of tensors that every such layer has, and no other one. */
  marks(layer: number): readonly string[];
}

/** What config.json says. */
export interface ModelConfig {
  shape: ModelShape;
  tiedEmbeddings: boolean;
  eosTokenIds: readonly number[];
  /** What ends an answer where no file of the checkpoint says anything. */
  usualEosTokenIds: readonly number[];
  quantization: Quantization;
  layout: CheckpointLayout;
  /** Other forms in which the experts may be stored. */
  otherLayouts: readonly CheckpointLayout[];
}

/** How the checkpoints of one architecture are written: its config.json and the names of its tensors. */
export interface ModelFamily {
  readonly name: string;
  /** Members of config.json's `architectures` that it reads. */
  readonly architectures: readonly string[];
  /** Quantized forms in which its checkpoints are shipped; none where left out. */
  readonly quantizations?: readonly Quantization[];
  /** Keys of config.json that it does not read, and why they change nothing here. */
  readonly explained?: ExplainedKeys;
  /** @throws MODEL_CORRUPT, MODEL_UNSUPPORTED */
  readConfig(config: ConfigReader): ModelConfig;
}
