import type { NamedLayer } from '../model-config/checkpoint-layout.js';
import {
  layerOf,
  modelConfig,
  readAlways,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import { readLayerKinds, readLayerNumbers, readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, convolutionNames, DECODER_NAMES, expertNames, NUMBERED } from '../model-config/tensor-names.js';
import { readTaps } from '../model-config/taps.js';

/** LFM2-MoE: gated short convolutions beside attention, sigmoid router with a bias for the choice. */
export const lfm2Moe: ModelFamily = {
  name: 'lfm2_moe',
  architectures: ['Lfm2MoeForCausalLM'],
  explained: {
    scoring_func: { why: 'it is what is computed', only: ['sigmoid'] },
    use_qk_norm: { why: 'it is what is computed', only: [true] },
  },
  readConfig(config) {
    config.only('conv_bias', [false], false);
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const attention = readAttention(config, { queryKeyNorm: 'head', normEpsilon }, { keyValueHeads: 8 });
    const convolution = { kind: 'convolution', taps: readTaps(config, 3, 'conv_L_cache') } as const;
    const full = readLayerNumbers(config, 'full_attn_idxs');
    if (!config.has('layer_types', 'full_attn_idxs')) throw config.corrupt('layer_types is missing');
    const kinds = readLayerKinds(
      config,
      ['conv', 'full_attention'],
      (layer) => (full.has(layer) ? 'full_attention' : 'conv'),
      { list: 'layer_types', rule: ['full_attn_idxs'] },
    );
    const routed = routerOf({
      score: 'sigmoid',
      choiceBias: config.flagOr(true, 'use_expert_bias'),
      normalize: config.flagOr(true, 'norm_topk_prob'),
      sumEpsilon: Math.fround(1e-6),
      scale: Math.fround(config.numberOr(1, 'routed_scaling_factor')),
    });
    const sparse = readSparseBehindDense(config, 2);
    const dense = readAlways(config, 'intermediate_size');
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 1e6, headDim: attention.headDim })],
      layers: kinds.map((kind, layer) =>
        layerOf(kind === 'conv' ? convolution : attention, sparse[layer] === true ? { routed } : { always: dense }),
      ),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      model: { ...DECODER_NAMES.model, finalNorm: 'embedding_norm.weight' },
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('feed_forward', 'feed_forward', NUMBERED),
        mixerNorm: 'operator_norm.weight',
        feedForwardNorm: 'ffn_norm.weight',
        queryNorm: 'self_attn.q_layernorm.weight',
        keyNorm: 'self_attn.k_layernorm.weight',
        convolutionInput: 'conv.in_proj.weight',
        convolution: convolutionNames('conv.conv.weight', shape.hiddenSize, convolution.taps),
        mixerOutput: ({ layer }: NamedLayer): string =>
          layer.mixer.kind === 'attention' ? 'self_attn.out_proj.weight' : 'conv.out_proj.weight',
        router: 'feed_forward.gate.weight',
        choiceBias: 'feed_forward.expert_bias',
      },
      expert: expertNames('feed_forward.experts', NUMBERED),
    };
    return modelConfig(config, shape, names, { tied: true, eos: 2 });
  },
};
