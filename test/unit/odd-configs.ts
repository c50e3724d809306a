/** The quantization_config of checkpoints whose weights odd-shipped.ts makes. */

function compressed(format: string, weights: Record<string, unknown>): unknown {
  const group = { targets: ['Linear'], format, weights: { dynamic: false, symmetric: true, ...weights } };
  return { quant_method: 'compressed-tensors', format, config_groups: { group_0: group }, ignore: [] };
}

/** `group`: columns with one scale; null: the whole row. */
export function wholes(bits: number, group: number | null, more: Record<string, unknown> = {}): unknown {
  const strategy = group === null ? 'channel' : 'group';
  return compressed('pack-quantized', { num_bits: bits, type: 'int', strategy, group_size: group, ...more });
}

export function floats(format: string, weights: Record<string, unknown>): unknown {
  return compressed(format, { num_bits: 4, type: 'float', strategy: 'group', ...weights });
}

export function gptqConfig(bits: number, group: number, more: Record<string, unknown> = {}): unknown {
  return { quant_method: 'gptq', bits, group_size: group, sym: false, desc_act: false, ...more };
}

export function awqConfig(group: number): unknown {
  return { quant_method: 'awq', bits: 4, group_size: group, version: 'gemm', zero_point: true };
}

export const fp8 = { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [128, 128], activation_scheme: 'dynamic' };
