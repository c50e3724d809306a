import { relative } from 'node:path';
import type { Checkpoint } from './checkpoint/checkpoint.js';
import type { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import { densePlaces, type DenseRole } from '../shared/model/dense-roles.js';
import { expertMatrixValues, expertRowSize, type ModelShape } from '../shared/model/model-shape.js';
import { formatShares, type FormatShare } from '../shared/model/format-shares.js';
import { allExperts, storedBytes } from '../shared/model/part-sizes.js';
import {
  type DraftHeadSource,
  EXPERT_MATRICES,
  type ShippedFormat,
  type SlicedSplit,
  type TensorSource,
} from '../shared/model/tensor-source.js';
import { type LayerKind, layerKinds } from './describe-layers.js';
import type { CodecSetting } from './format/pack-codec.js';
import type { FormRecall } from '../shared/decisions/slices/choose-shadow-form.js';
import type { MeasuredTheta } from '../shared/decisions/slices/plan-readings.js';
import { isSlicesOnly } from './format/manifest.js';
import type { Pack } from './format/open-pack.js';
import { ownDensePlaces } from './packing/model-bytes.js';
import { type LeftOutTensors, leftOutTensors } from './packing/left-out-tensors.js';
import { type PackCompression, packCompression } from './pack-compression.js';
import type { Predictor } from './predictor/predictor-file.js';
import { type FoundSlices, NO_SLICES, type Slices } from './slices/open-slices.js';
import { bitsPerWeight, pairOfSplit } from './slices/slice-pair.js';
import { sliceFileBytes } from './slices/slices-manifest.js';

export interface DescribedFile {
  name: string;
  sizeBytes: number;
}

/** The contents of a model's directory, for people and for --json. Bytes are those on the disk unless a comment says otherwise. */
export interface ModelDescription {
  kind: 'pack' | 'checkpoint';
  directory: string;
  name: string;
  family: string;
  shape: ModelShape;
  shippedFormat: ShippedFormat;
  /** The formats of the experts, the one of most weights first; none for a pack of slices only. */
  expertFormats: FormatShare[];
  tiedEmbeddings: boolean;
  eosTokenIds: readonly number[];
  parameters: number;
  parametersPerToken: number;
  denseBytes: number;
  expertBytes: number;
  /** Bytes of each expert layer. */
  bytesPerLayer: number[];
  layerKinds: LayerKind[];
  /** Bytes of the head that drafts tokens, in none of the other sums; null: there is none. */
  draftHeadBytes: number | null;
  /** Tensors of the checkpoint that are not packed. */
  leftOut: LeftOutTensors[];
  /** Device memory that one expert takes on a worker; null: the pack has slices only. */
  slotBytes: number | null;
  files: DescribedFile[];
  totalBytes: number;
  /** Null for a checkpoint. */
  pack: {
    digest: string;
    formatVersion: number;
    odmoeVersion: string;
    codec: CodecSetting['codec'];
    codecLevel: number | null;
    shards: number;
    /** True: no lossless parts of experts. */
    slicesOnly: boolean;
    compression: PackCompression;
    sourceFingerprint: string;
    /** Null: none that can be described. */
    slices: SlicesFacts | null;
    /** Slices in the making, which packing again finishes. */
    slicesUnfinished: boolean;
    /** The fault of the slices; null: their files have the right sizes. */
    slicesDamage: string | null;
    /** Recall of the forms of a shadow; null: not measured. */
    shadowRecall: readonly FormRecall[] | null;
    /** Maps that foretell experts; null: none that can be used. */
    predictor: PredictorFacts | null;
    /** The fault of the predictor; null: it is whole, or there is none. */
    predictorDamage: string | null;
  } | null;
}

/** A predictor without its maps. */
export type PredictorFacts = Omit<Predictor, 'layers'>;

/** The slices beside a pack's lossless parts. */
export interface SlicesFacts {
  /** Bits of a whole code and of its upper slice: "8,4". */
  pair: string;
  digest: string;
  upperBytes: number;
  /** 0: the pack has no lower slices. */
  lowerBytes: number;
  /** Device memory that one sliced expert takes on a worker. */
  slotBytes: SlicedSlotBytes;
  /** Stored bits of a weight in rows of whole groups: of the upper slice alone, and of both. */
  upperBitsPerWeight: number;
  bitsPerWeight: number;
  /** Thresholds of critical executions; null: not measured. */
  theta: readonly MeasuredTheta[] | null;
}

/** A slot with the upper slice alone, and with both. */
export interface SlicedSlotBytes {
  readonly upper: number;
  readonly both: number;
}

/** Sizes of slots, which the device knows. */
export interface DescribedSlots {
  /** Of one expert as it is shipped. */
  readonly shippedBytes: number;
  slicedBytes(split: SlicedSplit): SlicedSlotBytes;
}

/** Files beside a pack that its manifest does not name. */
export interface BesidePack {
  readonly slices: FoundSlices;
  /** Null: there is none. */
  readonly shadowRecall: readonly FormRecall[] | null;
  readonly predictor: FoundPredictor;
}

/** A pack's predictor; both are null where there is none. */
export interface FoundPredictor {
  readonly predictor: Predictor | null;
  readonly damage: OdmoeError | null;
}

export const NO_PREDICTOR: FoundPredictor = { predictor: null, damage: null };

const NOTHING_BESIDE: BesidePack = { slices: NO_SLICES, shadowRecall: null, predictor: NO_PREDICTOR };

/** Describes an opened model. */
export function describeModel(
  source: Pack | Checkpoint,
  slots: DescribedSlots,
  beside: BesidePack = NOTHING_BESIDE,
): ModelDescription {
  const { shape } = source;
  const bytesPerLayer = Array.from({ length: shape.expertLayers }, (_, layer) => layerBytes(source, layer));
  const dense = Array.from(densePlaces(shape, source.tiedEmbeddings), ({ role, layer }) => ({
    role,
    tensor: source.dense(role, layer),
  }));
  const denseParameters = dense.map(({ tensor }) => tensor.rows * tensor.columns).reduce(add, 0);
  const expertParameters = expertParameterCount(shape);
  const files = filesOf(source);
  const slicesOnly = source.kind === 'pack' && isSlicesOnly(source.manifest);
  return {
    kind: source.kind,
    directory: source.directory,
    name: source.name,
    family: source.kind === 'pack' ? source.manifest.model.family : source.family,
    shape,
    shippedFormat: source.shippedFormat,
    expertFormats: slicesOnly ? [] : formatShares(allExperts(source)),
    tiedEmbeddings: source.tiedEmbeddings,
    eosTokenIds: source.eosTokenIds,
    parameters: denseParameters + shape.expertLayers * shape.experts * expertParameters,
    parametersPerToken: denseParameters + shape.expertLayers * shape.expertsPerToken * expertParameters,
    denseBytes: dense.map(denseBytes).reduce(add, 0),
    expertBytes: bytesPerLayer.reduce(add, 0),
    bytesPerLayer,
    layerKinds: layerKinds(shape),
    draftHeadBytes: source.draftHead ? draftHeadBytes(source.draftHead) : null,
    leftOut: leftOutOf(source),
    slotBytes: slicesOnly ? null : slots.shippedBytes,
    files,
    totalBytes: files.map((file) => file.sizeBytes).reduce(add, 0),
    pack: packFacts(source, beside, slots),
  };
}

/** A table of experts by token may be stored as numbers of 64 bits, of which the low words are read: no other tensor has the high ones. */
function denseBytes({ role, tensor }: { role: DenseRole; tensor: TensorSource }): number {
  return storedBytes(role === 'tokenExperts' ? { ...tensor, view: null } : tensor);
}

function draftHeadBytes(head: DraftHeadSource): number {
  const dense = ownDensePlaces(head).map(({ role, layer }) => storedBytes(head.dense(role, layer)));
  const experts = Array.from(allExperts(head), (expert) =>
    EXPERT_MATRICES.map((part) => storedBytes(expert[part])).reduce(add, 0),
  );
  return [...dense, ...experts].reduce(add, 0);
}

function packFacts(
  source: Pack | Checkpoint,
  { slices: { slices, isUnfinished, damage }, shadowRecall, predictor: found }: BesidePack,
  slots: DescribedSlots,
): ModelDescription['pack'] {
  if (source.kind !== 'pack') return null;
  const { manifest, packDigest } = source;
  return {
    digest: packDigest,
    formatVersion: manifest.format_version,
    odmoeVersion: manifest.odmoe_version,
    codec: manifest.codec,
    codecLevel: manifest.codec_level,
    shards: manifest.shards,
    slicesOnly: isSlicesOnly(manifest),
    compression: packCompression(manifest),
    sourceFingerprint: manifest.source.fingerprint,
    slices: slices === null ? null : slicesFacts(slices, slots),
    slicesUnfinished: isUnfinished,
    slicesDamage: damage?.message ?? null,
    shadowRecall,
    predictor: found.predictor === null ? null : predictorFacts(found.predictor),
    predictorDamage: found.damage?.message ?? null,
  };
}

function predictorFacts({ shape, recall, tokens, seed, text }: Predictor): PredictorFacts {
  return { shape, recall, tokens, seed, text };
}

function slicesFacts({ split, opened, digest, manifest }: Slices, slots: DescribedSlots): SlicesFacts {
  const { upper, both } = bitsPerWeight(split);
  const { upperBytes, lowerBytes } = sliceFileBytes(manifest);
  return {
    pair: pairOfSplit(split),
    digest,
    upperBytes,
    lowerBytes: opened === 'both' ? lowerBytes : 0,
    slotBytes: slots.slicedBytes(split),
    upperBitsPerWeight: upper,
    bitsPerWeight: both,
    theta: manifest.theta,
  };
}

function leftOutOf(source: Pack | Checkpoint): LeftOutTensors[] {
  if (source.kind === 'checkpoint') return leftOutTensors(source);
  return source.manifest.source.left_out.map(({ name, tensors, size_bytes: sizeBytes }) => ({
    name,
    tensors,
    sizeBytes,
  }));
}

function filesOf(source: Pack | Checkpoint): DescribedFile[] {
  if (source.kind === 'pack') {
    return source.manifest.files.map((file) => ({ name: file.name, sizeBytes: file.size_bytes }));
  }
  return source.files.map((file) => ({ name: relative(source.directory, file.path), sizeBytes: file.sizeBytes }));
}

function layerBytes(source: Pack | Checkpoint, layer: number): number {
  if (source.kind === 'pack' && isSlicesOnly(source.manifest)) return 0;
  const { experts } = source.shape;
  const biasBytes =
    source.kind === 'checkpoint'
      ? source.expertBiases(layer).storedBytes
      : source.manifest.experts
          .slice(layer * experts, (layer + 1) * experts)
          .map(({ biases }) => biases?.stored_bytes ?? 0)
          .reduce(add, 0);
  let bytes = biasBytes;
  for (let expert = 0; expert < experts; expert += 1) {
    const tensors = source.expert(layer, expert);
    bytes += EXPERT_MATRICES.map((part) => storedBytes(tensors[part])).reduce(add, 0);
  }
  return bytes;
}

/** Values of one expert: its three matrices, and its biases if it has any. */
function expertParameterCount(shape: ModelShape): number {
  const { intermediateSize, bias } = shape.expert;
  return expertMatrixValues(shape) + (bias ? 2 * intermediateSize + expertRowSize(shape) : 0);
}

function add(a: number, b: number): number {
  return a + b;
}
