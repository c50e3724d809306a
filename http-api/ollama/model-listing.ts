import type { NodeStatus } from '../../shared/wire/messages.js';
import type { ServedModel } from '../http-api-context.js';
import { isExact } from '../../shared/settings/quality.js';
import { taggedName } from './model-name.js';

/** The model is never unloaded. Clients need a time, and some of them refuse times near the end of their calendar. */
const NEVER = '2300-01-01T00:00:00Z';

export interface ModelDetails {
  parent_model: string;
  format: string;
  family: string;
  families: string[];
  parameter_size: string;
  quantization_level: string;
}

export function modelDetails(model: ServedModel): ModelDetails {
  return {
    parent_model: '',
    format: 'safetensors',
    family: model.family,
    families: [model.family],
    parameter_size: parameterSize(model.parameters),
    quantization_level: quantizationLevel(model),
  };
}

/** The quality of sliced experts, or else the format as shipped, which tensor cores do not change. */
function quantizationLevel({ arithmetic, weightFormat }: ServedModel): string {
  return isExact(arithmetic) || arithmetic === 'fast' ? weightFormat : arithmetic;
}

/** For example "7.0M" or "46.7B". */
export function parameterSize(parameters: number): string {
  const [unit, name] = parameters >= 1e9 ? [1e9, 'B'] : parameters >= 1e6 ? [1e6, 'M'] : [1e3, 'K'];
  return `${(parameters / unit).toFixed(1)}${name}`;
}

/** The answer of /api/tags. */
export function modelTags(model: ServedModel): object {
  return { models: [{ ...listed(model), modified_at: modifiedAt(model), size: model.packBytes }] };
}

/** The answer of /api/ps. The size is the memory of the nodes' devices. It stays in use until main ends. */
export function runningModels(model: ServedModel, nodes: readonly NodeStatus[]): object {
  const held = nodes.map((node) => ({ bytes: node.deviceMemoryUsedBytes, gpu: node.deviceName !== '' }));
  const sum = (memories: typeof held): number => memories.reduce((total, { bytes }) => total + bytes, 0);
  return {
    models: [
      {
        ...listed(model),
        size: sum(held),
        size_vram: sum(held.filter(({ gpu }) => gpu)),
        expires_at: NEVER,
        context_length: model.contextPositions,
      },
    ],
  };
}

/** The answer of /api/show. */
export function modelDescription(
  model: ServedModel,
  capabilities: readonly string[],
  templateProblem: string | null,
): object {
  const { family } = model;
  return {
    license: '',
    modelfile: `FROM ${taggedName(model.name)}\n`,
    parameters: '',
    template: model.tokenizer?.chatTemplateSource ?? '',
    details: modelDetails(model),
    model_info: {
      'general.architecture': family,
      'general.basename': model.name,
      'general.parameter_count': model.parameters,
      [`${family}.context_length`]: model.contextPositions,
      [`${family}.vocab_size`]: model.vocabSize,
    },
    capabilities,
    ...(templateProblem === null ? {} : { template_problem: templateProblem }),
    modified_at: modifiedAt(model),
  };
}

function listed(model: ServedModel): object {
  const name = taggedName(model.name);
  return { name, model: name, digest: model.packDigest, details: modelDetails(model) };
}

function modifiedAt({ createdS }: ServedModel): string {
  return new Date(createdS * 1000).toISOString();
}
