import { answerArithmetic } from '../fields/arithmetic-field.js';
import type { ServedModel } from '../http-api-context.js';

export function openaiModel(model: ServedModel): object {
  const { name: id, createdS: created, contextPositions } = model;
  // The number of context positions has the same name as in other servers.
  return {
    id,
    object: 'model',
    created,
    owned_by: 'odmoe',
    max_model_len: contextPositions,
    ...answerArithmetic(model),
  };
}

export function openaiModels(model: ServedModel): object {
  return { object: 'list', data: [openaiModel(model)] };
}
