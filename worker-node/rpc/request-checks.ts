import { allFinite } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { Execute } from '../../shared/wire/messages.js';

/** Checks whether a request fits the model that this worker serves, which the decoder does not know. Each check throws PROTOCOL_VIOLATION. */
export function checkExecute(execute: Execute, shape: ModelShape): void {
  checkLayer(execute.layer, shape);
  for (const { expert } of execute.experts) checkExpert(expert, shape);
  if (execute.hiddenSize !== shape.hiddenSize) {
    throw violation(`hidden states of ${execute.hiddenSize} values, and this model's have ${shape.hiddenSize}`);
  }
  if (execute.dtype !== 'TENSOR_TYPE_F32') {
    throw violation(`wire: bf16 is not yet supported (${execute.dtype} came): set wire to f32`);
  }
  if (!allFinite(execute.hidden)) throw violation('hidden states that are no finite numbers');
}

export function checkExpectedExperts(
  { layer, experts }: { layer: number; experts: readonly number[] },
  shape: ModelShape,
): void {
  checkLayer(layer, shape);
  if (experts.length > shape.experts) throw violation(`${experts.length} experts, and a layer has ${shape.experts}`);
  for (const expert of experts) checkExpert(expert, shape);
}

function checkLayer(layer: number, shape: ModelShape): void {
  if (layer >= shape.expertLayers)
    throw violation(`layer ${layer}, and this model has layers 0 to ${shape.expertLayers - 1}`);
}

function checkExpert(expert: number, shape: ModelShape): void {
  if (expert >= shape.experts)
    throw violation(`expert ${expert}, and this model has experts 0 to ${shape.experts - 1}`);
}

function violation(what: string): OdmoeError {
  return new OdmoeError('PROTOCOL_VIOLATION', `A request to this worker names ${what}.`);
}
