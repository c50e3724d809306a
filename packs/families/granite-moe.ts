import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import { forLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, fusedExpertNames } from '../model-config/tensor-names.js';

/** Granite-MoE: factors of embeddings, residual branches, scores and logits. */
export const graniteMoe: ModelFamily = {
  name: 'granitemoe',
  architectures: ['GraniteMoeForCausalLM'],
  readConfig(config) {
    config.only('norm_topk_prob', [true], true);
    const bias = config.flagOr(false, 'attention_bias');
    const scoreScale = Math.fround(config.positiveOr(1, 'attention_multiplier'));
    const mixer = readAttention(config, { bias, outputBias: bias, scoreScale });
    const layer = layerOf(mixer, { routed: routerOf({ normalize: true }) });
    const shape = readDecoder(config, {
      embeddingScale: Math.fround(config.numberOr(1, 'embedding_multiplier')),
      residualScale: Math.fround(config.numberOr(1, 'residual_multiplier')),
      logitDivisor: Math.fround(config.positiveOr(1, 'logits_scaling')),
      ropes: [readRope(config, { theta: 10_000, headDim: mixer.headDim })],
      layers: forLayers(config, () => layer),
      expert: readSwiglu(config, ['intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, router: 'block_sparse_moe.router.layer.weight' },
      expert: fusedExpertNames('block_sparse_moe.input_linear.weight', 'block_sparse_moe.output_linear.weight'),
    };
    return modelConfig(config, shape, names, { eos: 2 });
  },
};
