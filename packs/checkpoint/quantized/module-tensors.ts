import type { CheckpointTensor } from '../../model-config/checkpoint-tensor.js';

/** The tensors of one quantized module by the ends of their names. */
export const MODULE_PARTS = [
  'weight',
  'weight_packed',
  'weight_scale',
  'weight_scale_inv',
  'scale',
  'weight_scale_2',
  'weight_global_scale',
  'weight_zero_point',
  'weight_g_idx',
  'weight_shape',
  'qweight',
  'qzeros',
  'scales',
  'g_idx',
] as const;
export type ModulePart = (typeof MODULE_PARTS)[number];

/** Tensors that stand beside a module's weight and change none: they quantize activations and the cache of keys and values. */
const IDLE_PARTS =
  /\.(input_scale|input_global_scale|activation_scale|[kqv]_scale|kv_scale|output_scale|weight_shape)$/;

/** Name of a module with a dot behind it; null: the tensor is no weight of a module. */
export function moduleOf(name: string): string | null {
  return name.endsWith('.weight') ? name.slice(0, -'weight'.length) : null;
}

export function isIdlePart(name: string): boolean {
  return IDLE_PARTS.test(name);
}

/** True if the checkpoint has the weight in any form. */
export function hasWeight(found: ReadonlyMap<string, CheckpointTensor>, name: string): boolean {
  if (found.has(name) || found.has(`${name}_blocks`)) return true;
  const module = moduleOf(name);
  return module !== null && (found.has(`${module}weight_packed`) || found.has(`${module}qweight`));
}
