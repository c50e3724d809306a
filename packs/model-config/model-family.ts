import type { ExplainedKeys } from './explained-keys.js';
import type { ConfigReader, Quantization } from './config-reader.js';
import type { DensePlace } from '../../shared/model/dense-roles.js';
import type { WeightScheme } from './weight-scheme.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { ExpertMatrix, TensorView } from '../../shared/model/tensor-source.js';

/** The tensor role and place of a tensor. `layer` of a dense place counts all layers; that of an expert counts expert layers. */
export type TensorPlace =
  | ({ kind: 'dense' } & DensePlace)
  | { kind: 'expert'; part: ExpertMatrix; layer: number; expert: number };

/** The part of a stored matrix that a view takes (TensorView explains the fields). */
export type TensorSlice = Pick<
  TensorView,
  'firstRow' | 'blockRows' | 'stepRows' | 'firstColumn' | 'stepColumns' | 'transposed' | 'multiply' | 'add'
>;

/** A needed tensor's place in a checkpoint. */
export interface StoredTensor {
  name: string;
  /** Dimensions of the stored tensor. For MXFP4, those of its values, which are stored in NAME_blocks and NAME_scales. */
  dimensions: readonly number[];
  /** integers: whole numbers of 64 or 32 bits; the low 32 are read. */
  encoding: 'values' | 'mxfp4' | 'integers';
  /** null: the whole tensor, unchanged. */
  slice: TensorSlice | null;
}

/** A tensor that a checkpoint must hold, directly or as part of another. */
export interface ExpectedTensor extends StoredTensor {
  place: TensorPlace;
}

/** Places of the tensors in a checkpoint with a certain config.json. */
export interface CheckpointLayout {
  dense(place: DensePlace): StoredTensor;
  /** `layer` counts all layers, also in expertBias. */
  expert(part: ExpertMatrix, layer: number, expert: number): StoredTensor;
  /** null: experts have no biases. */
  expertBias: ((part: ExpertMatrix, layer: number, expert: number) => StoredTensor) | null;
  /** True for tensors that may be present and are not needed for text: other towers, tables that our code computes. */
  isLeftOut(name: string): boolean;
  /** Layers behind the last one that only guess tokens ahead. */
  guessing: GuessingLayers;
}

export interface GuessingLayers {
  /** Number of the guessing layer to which a tensor belongs; null: it belongs to none. */
  layerBehindLast(name: string): number | null;
  /** Number of such layers in config.json. */
  count: number;
  /** `name`: a tensor's name within its layer. True if a guessing layer may have it. */
  isPart(name: string): boolean;
  /** Names of tensors that every guessing layer has, and no other layer. */
  marks(layer: number): readonly string[];
}

/** The contents of config.json. */
export interface ModelConfig {
  shape: ModelShape;
  tiedEmbeddings: boolean;
  eosTokenIds: readonly number[];
  /** End-of-sequence tokens if no file of the checkpoint has any. */
  usualEosTokenIds: readonly number[];
  quantization: Quantization;
  /** The ways in which modules are quantized, absent for none; their tensors show which module has which. */
  schemes?: readonly WeightScheme[];
  layout: CheckpointLayout;
  /** Layouts of other forms in which the experts may be stored. */
  otherLayouts: readonly CheckpointLayout[];
  /**
   * The head that drafts tokens for the model, described as a model of one layer. A checkpoint may lack it, or only its embedding and LM head:
   * then the model's own stand for these two.
   */
  draftHead?: ModelConfig;
}

/** Reads the checkpoints of one architecture: their config.json and the names of their tensors. */
export interface ModelFamily {
  readonly name: string;
  /** Values of config.json's `architectures` that the family reads. */
  readonly architectures: readonly string[];
  /** The only methods of quantization in which its checkpoints are read; absent: all but mxfp4. */
  readonly quantizations?: readonly Quantization[];
  /** Keys of config.json that it does not read, with the reasons why they change nothing here. */
  readonly explained?: ExplainedKeys;
  /** @throws MODEL_CORRUPT, MODEL_UNSUPPORTED */
  readConfig(config: ConfigReader): ModelConfig;
}
