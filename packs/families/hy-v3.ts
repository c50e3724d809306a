import { readBiasedRouter } from '../model-config/biased-router.js';
import {
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSharedOrDense,
  readSwiglu,
} from '../model-config/decoder-config.js';
import { readGuessingLayers, readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** Hy3: query and key norms before the rotation, a sigmoid router with a bias for the choice, shared experts without a gate. */
export const hyV3: ModelFamily = {
  name: 'hy_v3',
  architectures: ['HYV3ForCausalLM'],
  explained: {
    enable_moe_fp32_combine: { why: 'outputs of experts are always summed in FP32' },
    enable_attention_fp32_softmax: { why: 'softmax is always computed in FP32' },
    enable_lm_head_fp32: { why: 'logits are always computed in FP32' },
  },
  readConfig(config) {
    config.only('mlp_bias', [false], false);
    config.only('moe_router_use_sigmoid', [true], true);
    config.only('moe_router_enable_expert_bias', [true], true);
    const bias = config.flagOr(false, 'attention_bias');
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const queryKeyNorm = config.flagOr(true, 'qk_norm') ? 'head' : 'none';
    const mixer = readAttention(
      config,
      { bias, outputBias: bias, queryKeyNorm, normEpsilon },
      { keyValueHeads: 8, headDim: 128 },
    );
    const routed = readBiasedRouter(config, {
      normalize: config.flagOr(true, 'route_norm'),
      scale: Math.fround(config.numberOr(2.826, 'router_scaling_factor')),
    });
    const expert = readSwiglu(config, ['moe_intermediate_size', 'expert_hidden_dim']);
    const shared = config.countOr(1, 'num_shared_experts');
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 11_158_840, headDim: mixer.headDim })],
      layers: readSharedOrDense(config, readSparseBehindDense(config, 1), { mixer, routed, shared }),
      expert,
    });
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('mlp', 'mlp.shared_mlp'),
        router: 'mlp.router.gate.weight',
        choiceBias: 'mlp.expert_bias',
      },
      guessingLayers: readGuessingLayers(config),
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: null });
  },
};
