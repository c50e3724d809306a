import type { ConfigReader } from '../../model-config/config-reader.js';
import type { WeightScheme } from '../../model-config/weight-scheme.js';
import { groupColumns } from './group-columns.js';

/** Settings of how GPTQ found its codes; none says how they are stored. */
const GPTQ_SEARCH = [
  'true_sequential',
  'damp_percent',
  'damp_auto_increment',
  'static_groups',
  'dataset',
  'model_seqlen',
  'block_name_to_quantize',
  'module_name_preceding_first_block',
  'modules_in_block_to_quantize',
  'batch_size',
  'tokenizer',
  'cache_block_outputs',
  'max_input_length',
  'use_cuda_fp16',
  'use_exllama',
  'exllama_config',
  'disable_exllama',
  'backend',
  'model_name_or_path',
  'model_file_base_name',
  'is_marlin_format',
  'quantizer',
  'meta',
  'modules_to_not_convert',
  'packing_dtype',
  'pack_impl',
  'mse',
  'act_group_aware',
  'v2_alpha',
  'v2',
] as const;

/**
 * The scheme of GPTQ's config (ModelCloud/GPTQModel, QuantizeConfig).
 * @throws MODEL_UNSUPPORTED, MODEL_CORRUPT
 */
export function readGptq(config: ConfigReader): WeightScheme[] {
  const bits = config.only('bits', [4, 8], 4);
  const group = groupColumns(config);
  const reordered = config.flagOr(false, 'desc_act') && group !== 0;
  const symmetric = config.flagOr(true, 'sym');
  config.only('lm_head', [true, false], false);
  config.only('pack_dtype', ['int32'], 'int32');
  config.only('is_marlin_format', [false], false);
  const version = config.only('checkpoint_format', ['gptq', 'gptq_v2'], 'gptq');
  refuseOverrides(config);
  config.idle(...GPTQ_SEARCH);
  return [{ kind: 'gptq', bits, group, symmetric, reordered, zeros: version === 'gptq' ? 'v1' : 'v2' }];
}

/** `dynamic` may exclude modules, which the tensors show, and give some of them other parameters. */
function refuseOverrides(config: ConfigReader): void {
  const dynamic = config.within('dynamic');
  if (dynamic === null) return;
  for (const pattern of dynamic.objectKeys()) {
    if (!pattern.startsWith('-:'))
      throw config.unsupported('dynamic', pattern, 'only patterns that exclude modules ("-:")');
    config.idle(`dynamic.${pattern}`);
  }
  config.idle('dynamic');
}

/**
 * The scheme of AWQ's config (casper-hansen/AutoAWQ, AwqConfig).
 * @throws MODEL_UNSUPPORTED, MODEL_CORRUPT
 */
export function readAwq(config: ConfigReader): WeightScheme[] {
  if (config.has('version')) {
    const version = config.textOr('gemm', 'version');
    if (version.toLowerCase() !== 'gemm') throw config.unsupported('version', version, '"gemm"');
  }
  config.only('bits', [4], 4);
  config.only('w_bit', [4], 4);
  config.only('zero_point', [true], true);
  config.idle(
    'modules_to_not_convert',
    'ignore',
    'backend',
    'do_fuse',
    'fuse_max_seq_len',
    'exllama_config',
    'modules_to_fuse',
  );
  // AutoAWQ's own name of the key.
  const key = config.has('q_group_size') && !config.has('group_size') ? 'q_group_size' : 'group_size';
  return [{ kind: 'awq', group: groupColumns(config, key) }];
}
