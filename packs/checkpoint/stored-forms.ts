import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { expertLayerNumbers } from '../../shared/model/model-shape.js';
import type { Quantization } from '../model-config/config-reader.js';
import type { ModelConfig } from '../model-config/model-family.js';
import { hasWeight } from './quantized/module-tensors.js';
import { type CheckpointTensor, ORIGINAL_CHECKPOINT } from '../model-config/checkpoint-tensor.js';

export type CheckpointTensors = ReadonlyMap<string, CheckpointTensor>;

/** Tensors that identify quantized forms which cannot be read. The first match names the form. */
const FOREIGN_FORMS: readonly { names: RegExp; form: string; readBy?: readonly Quantization[] }[] = [
  {
    names: /\.(weight_scale_2|weight_global_scale|input_global_scale)$/,
    form: 'NVFP4 (codes of 4 bits, two scales)',
    readBy: ['compressed-tensors', 'modelopt'],
  },
  { names: /\.weight_packed$/, form: 'compressed-tensors (packed codes)', readBy: ['compressed-tensors'] },
  {
    names: /\.weight_zero_point$/,
    form: 'compressed-tensors (codes with zero points)',
    readBy: ['compressed-tensors'],
  },
  { names: /\.g_idx$/, form: 'GPTQ', readBy: ['gptq'] },
  { names: /\.(qweight|qzeros)$/, form: 'GPTQ or AWQ (qweight with qzeros and scales)', readBy: ['gptq', 'awq'] },
  {
    names: /\.(weight\.)?(quant_state\.|absmax$|quant_map$|nested_absmax$|nested_quant_map$)/,
    form: 'bitsandbytes (4 bits)',
  },
  { names: /\.(weight\.)?(SCB|weight_format)$/, form: 'bitsandbytes (8 bits)' },
  { names: /\.W_q$/, form: 'HQQ' },
  { names: /\.(q_weight|q_scale_max|q_invperm|trellis|suh|svh)$/, form: 'ExLlama' },
  { names: /\.(codebooks|codes)$/, form: 'AQLM' },
  {
    names: /\.(weight_scale|input_scale|activation_scale)$/,
    form: 'FP8 or INT8 with weight_scale, of other blocks than 128 x 128',
    readBy: ['compressed-tensors', 'modelopt', 'fbgemm_fp8', 'fp8'],
  },
  { names: /\.scales$/, form: 'MLX or AWQ (codes with scales)', readBy: ['gptq', 'awq'] },
];

/**
 * Refuses a checkpoint in a quantized form that cannot be read, or of which config.json says nothing, if it has tensors of such a form.
 * @throws MODEL_UNSUPPORTED
 */
export function refuseForeignForms(found: CheckpointTensors, directory: string, quantization: Quantization): void {
  for (const { names, form, readBy } of FOREIGN_FORMS) {
    if (readBy?.includes(quantization) === true) continue;
    for (const [name, { shape, dtype }] of found) {
      if (!names.test(name)) continue;
      throw new OdmoeError(
        'MODEL_UNSUPPORTED',
        `${directory}: the checkpoint is quantized in a form that is not read: ${form}, as tensor ${name} of ${dtype} ` +
          `[${shape.join(', ')}] shows; ${ORIGINAL_CHECKPOINT}`,
      );
    }
  }
}

/** Names of tensors in the expert part of a layer. */
const EXPERTS = /\.(experts?|block_sparse_moe|moe)\./;

/**
 * The config with the layout in which the checkpoint's experts are stored: the layout whose first expert is present.
 * @throws MODEL_UNSUPPORTED if none of the family's layouts fits
 */
export function chooseLayout(config: ModelConfig, found: CheckpointTensors, directory: string): ModelConfig {
  const [layer] = expertLayerNumbers(config.shape);
  if (layer === undefined) return config;
  const layouts = [config.layout, ...config.otherLayouts];
  const chosen = layouts.find((layout) => {
    const { name } = layout.expert('gate', layer, 0);
    return hasWeight(found, name);
  });
  if (chosen !== undefined) {
    return { ...config, layout: chosen, otherLayouts: layouts.filter((layout) => layout !== chosen) };
  }
  const wanted = layouts.map((layout) => layout.expert('gate', layer, 0).name);
  const stored = [...found.values()].find(
    ({ name }) => name.includes(`layers.${layer}.`) && EXPERTS.test(name) && isExpertPart(name),
  );
  if (stored === undefined) return config;
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${directory}: experts are stored as ${stored.name} of shape [${stored.shape.join(', ')}], which is not read; ` +
      `read are ${wanted.join(' or ')}; ${ORIGINAL_CHECKPOINT}`,
  );
}

/** Shared experts and routers are not parts of experts. */
function isExpertPart(name: string): boolean {
  return !/shared_expert|\.(gate|router|expert_bias)\.|correction_bias|\.experts\.bias$/.test(name);
}

/** The error for a tensor with as many values in another order, which cannot be read. */
export function foreignShape(tensor: CheckpointTensor, expected: readonly number[]): OdmoeError | null {
  const { path, name, shape } = tensor;
  const say = (form: string): OdmoeError =>
    new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: tensor ${name} has shape [${shape.join(', ')}], which is not read: ${form} expected is [${expected.join(', ')}]; ${ORIGINAL_CHECKPOINT}`,
    );
  const sorted = (sizes: readonly number[]): string => [...sizes].sort((a, b) => a - b).join();
  if (shape.length > 2 && sorted(shape) === sorted(expected)) {
    return say(EXPERTS.test(name) ? 'experts that stand transposed;' : 'its axes stand in another order;');
  }
  return null;
}

/**
 * The error for a missing tensor that is present in another form, which cannot be read or which config.json does not mention; null: there is
 * none.
 */
export function foreignInstead(name: string, found: CheckpointTensors, directory: string): OdmoeError | null {
  const say = (form: string): OdmoeError =>
    new OdmoeError('MODEL_UNSUPPORTED', `${directory}: ${form}; ${ORIGINAL_CHECKPOINT}`);
  if (found.has(`${name}_blocks`)) {
    return say(`tensor ${name} is stored as MXFP4, and config.json has no quantization_config of quant_method "mxfp4"`);
  }
  const values = name.replace(/_(blocks|scales)$/, '');
  if (values !== name && found.has(values)) {
    return say(`tensor ${values} is stored as values, and config.json says that it is MXFP4`);
  }
  if (name.endsWith('_scale_inv') && ![...found.keys()].some((stored) => stored.endsWith('_scale_inv'))) {
    return say(`weights are FP8 without scales for blocks of 128 x 128: there is no tensor ${name}`);
  }
  return null;
}
