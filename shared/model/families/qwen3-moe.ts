import {
  layerOf,
  modelConfig,
  readAlways,
  readAttention,
  readDecoder,
  readSwiglu,
  routerOf,
} from '../decoder-config.js';
import { readSparseSteps } from '../layer-kinds.js';
import type { ModelFamily } from '../model-family.js';
import { readRope } from '../rope-config.js';
import { DECODER_NAMES, expertNames } from '../tensor-names.js';

/** Qwen3-MoE: query and key norms, experts in every so many layers. */
export const qwen3Moe: ModelFamily = {
  name: 'qwen3_moe',
  architectures: ['Qwen3MoeForCausalLM'],
  quantizations: ['fp8'],
  readConfig(config) {
    const bias = config.flagOr(false, 'attention_bias');
    const window = config.flagOr(false, 'use_sliding_window') ? config.countOr(4096, 'sliding_window') : 0;
    const mixer = readAttention(config, { bias, outputBias: bias, queryKeyNorm: 'head', window });
    const routed = routerOf({ normalize: config.flagOr(false, 'norm_topk_prob') });
    const layers = readSparseSteps(config).map((sparse) =>
      layerOf(mixer, sparse ? { routed } : { always: readAlways(config, 'intermediate_size') }),
    );
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 10_000, headDim: mixer.headDim })],
      layers,
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    return modelConfig(config, shape, { ...DECODER_NAMES, expert: expertNames('mlp.experts') });
  },
};
