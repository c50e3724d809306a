import { EXPERT_MATRICES } from '../../shared/model/tensor-source.js';
import { densePlaces } from '../../shared/model/dense-roles.js';
import type { ExpectedTensor, ModelConfig } from '../model-config/model-family.js';
import { expertLayerNumbers } from '../../shared/model/model-shape.js';

/** Every tensor that a checkpoint with this config.json must have, in the order of a forward pass: dense tensors, then experts by layer. */
export function* expectedTensors({ shape, tiedEmbeddings, layout }: ModelConfig): Generator<ExpectedTensor> {
  for (const place of densePlaces(shape, tiedEmbeddings)) {
    yield { ...layout.dense(place), place: { kind: 'dense', ...place } };
  }
  for (const [layer, number] of expertLayerNumbers(shape).entries()) {
    for (let expert = 0; expert < shape.experts; expert += 1) {
      for (const part of EXPERT_MATRICES) {
        yield { ...layout.expert(part, number, expert), place: { kind: 'expert', part, layer, expert } };
      }
    }
  }
}

/** Biases of the experts, if the model's experts have any. */
export function* expectedBiases({ shape, layout }: ModelConfig): Generator<ExpectedTensor> {
  if (layout.expertBias === null) return;
  for (const [layer, number] of expertLayerNumbers(shape).entries()) {
    for (let expert = 0; expert < shape.experts; expert += 1) {
      for (const part of EXPERT_MATRICES) {
        yield { ...layout.expertBias(part, number, expert), place: { kind: 'expert', part, layer, expert } };
      }
    }
  }
}
