import {
  layerOf,
  modelConfig,
  readAlways,
  readAttention,
  readDecoder,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import { readSparseSteps } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, turnedExpertNames } from '../model-config/tensor-names.js';

/** The text part of Qwen3-VL-MoE: Qwen3-MoE with the experts of a layer in two tensors, input by output. */
export const qwen3VlMoe: ModelFamily = {
  name: 'qwen3_vl_moe',
  architectures: ['Qwen3VLMoeForConditionalGeneration'],
  explained: {
    max_window_layers: { why: 'no layer has a window', when: ['use_sliding_window', false] },
    sliding_window: { why: 'no layer has a window' },
  },
  readConfig(whole) {
    const text = whole.within('text_config');
    const config = text === null ? whole : whole.picked('tie_word_embeddings', 'eos_token_id').beside(text);
    config.only('norm_topk_prob', [true], true);
    config.only('use_sliding_window', [false], false);
    const bias = config.flagOr(false, 'attention_bias');
    const mixer = readAttention(config, { bias, outputBias: bias, queryKeyNorm: 'head' }, { keyValueHeads: 16 });
    const routed = routerOf({ normalize: true });
    const layers = readSparseSteps(config).map((sparse) =>
      layerOf(mixer, sparse ? { routed } : { always: readAlways(config, 'intermediate_size') }),
    );
    if (layers.every(({ always }) => always === null)) config.idle('intermediate_size');
    const shape = readDecoder(config, {
      // Text has equal positions on all three axes, so that each pair of dimensions turns as with one.
      ropes: [readRope(config, { theta: 500_000, headDim: mixer.headDim })],
      layers,
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      prefix: text === null ? 'model.' : 'model.language_model.',
      expert: turnedExpertNames('mlp.experts.gate_up_proj', 'mlp.experts.down_proj'),
      leftOut: [/^model\.visual\./],
    };
    return modelConfig(config, shape, names, { eos: null });
  },
};
