import { type DensePlace, densePlaces } from '../../shared/model/dense-roles.js';
import {
  type DraftHeadSource,
  EXPERT_MATRICES,
  type ExpertSource,
  type ModelSource,
  type TensorSource,
} from '../../shared/model/tensor-source.js';
import { rowBytes } from '../../shared/model/weight-dtype.js';

/** Sizes of the source of a pack. Tensors count as their views give them. */

export function tensorBytes({ rows, columns, split }: TensorSource): number {
  return rows * rowBytes(split, columns);
}

/** Bytes of an expert without its biases. */
export function expertBytes(expert: ExpertSource): number {
  return EXPERT_MATRICES.reduce((sum, part) => sum + tensorBytes(expert[part]), 0);
}

/** The dense tensors of a model, or of a head that drafts those that it does not share with its model. */
export function ownDensePlaces(model: ModelSource | DraftHeadSource): DensePlace[] {
  const places = [...densePlaces(model.shape, model.tiedEmbeddings)];
  return 'sharedRoles' in model ? places.filter(({ role }) => !model.sharedRoles.has(role)) : places;
}

export function denseBytes(model: ModelSource): number {
  let bytes = 0;
  for (const { role, layer } of ownDensePlaces(model)) {
    bytes += tensorBytes(model.dense(role, layer));
  }
  return bytes;
}

export function layerExpertBytes(model: ModelSource, layer: number): number {
  let bytes = 0;
  for (let expert = 0; expert < model.shape.experts; expert += 1) bytes += expertBytes(model.expert(layer, expert));
  return bytes;
}

/** Bytes of a model and of its head that drafts. */
export function modelBytes(model: ModelSource): number {
  let bytes = denseBytes(model) + (model.draftHead ? modelBytes(model.draftHead) : 0);
  for (let layer = 0; layer < model.shape.expertLayers; layer += 1) bytes += layerExpertBytes(model, layer);
  return bytes;
}
