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
import { readLayerKinds, readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** Trinity: norms before and behind attention and experts, gated attention, rotated in layers with a window only. */
export const afmoe: ModelFamily = {
  name: 'afmoe',
  architectures: ['AfmoeForCausalLM'],
  explained: {
    load_balance_coeff: { why: 'it counts while a model is trained' },
    use_grouped_mm: { why: 'it says how a program orders the same arithmetic' },
  },
  readConfig(config) {
    for (const key of ['num_expert_groups', 'num_limited_groups', 'n_group', 'topk_group']) config.only(key, [1], 1);
    config.only('score_func', ['sigmoid'], 'sigmoid');
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const bias = config.flagOr(false, 'attention_bias');
    const full = readAttention(
      config,
      { bias, outputBias: bias, normEpsilon, queryKeyNorm: 'head', outputGate: true, rotary: null },
      { headDim: 128 },
    );
    const window = config.sizeOr(1024, 'sliding_window');
    const windowed = { ...full, window, rotary: { rope: 0, pairing: 'halves', offset: 0 } as const };
    const every = config.sizeOr(4, 'global_attn_every_n_layers');
    const kinds = readLayerKinds(config, ['sliding_attention', 'full_attention'], (layer) =>
      (layer + 1) % every === 0 ? 'full_attention' : 'sliding_attention',
    );
    const routed = routerOf({
      score: 'sigmoid',
      choiceBias: true,
      normalize: config.flagOr(true, 'route_norm'),
      sumEpsilon: Math.fround(1e-20),
      scale: Math.fround(config.positiveOr(1, 'route_scale')),
    });
    const always = readAlways(config, 'moe_intermediate_size', config.countOr(2, 'num_shared_experts'));
    const dense = readAlways(config, 'intermediate_size');
    const sparse = readSparseBehindDense(config, 1);
    const hidden = config.size('hidden_size');
    const shape = readDecoder(config, {
      normEpsilon,
      embeddingScale: config.flagOr(false, 'mup_enabled') ? Math.fround(Math.sqrt(hidden)) : 1,
      ropes: [readRope(config, { theta: 10_000, headDim: full.headDim })],
      layers: kinds.map((kind, layer) =>
        layerOf(kind === 'full_attention' ? full : windowed, {
          ...(sparse[layer] === true ? { routed, always } : { always: dense }),
          mixerOutputNorm: true,
          feedForwardOutputNorm: true,
        }),
      ),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('mlp', 'mlp.shared_experts'),
        outputGate: 'self_attn.gate_proj.weight',
        mixerOutputNorm: 'post_attention_layernorm.weight',
        feedForwardNorm: 'pre_mlp_layernorm.weight',
        feedForwardOutputNorm: 'post_mlp_layernorm.weight',
        router: 'mlp.router.gate.weight',
        choiceBias: 'mlp.expert_bias',
      },
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: null });
  },
};
