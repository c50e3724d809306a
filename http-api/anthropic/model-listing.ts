import { answerArithmetic } from '../fields/arithmetic-field.js';
import type { ServedModel } from '../http-api-context.js';

export function anthropicModel(model: ServedModel): object {
  const { name: id, createdS, contextPositions } = model;
  return {
    type: 'model',
    id,
    display_name: id,
    created_at: new Date(createdS * 1000).toISOString(),
    max_input_tokens: contextPositions,
    max_tokens: contextPositions,
    ...answerArithmetic(model),
  };
}

/** The only page of the list. */
export function anthropicModels(model: ServedModel): object {
  return { data: [anthropicModel(model)], has_more: false, first_id: model.name, last_id: model.name };
}
