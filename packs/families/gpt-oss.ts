import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  routerOf,
} from '../model-config/decoder-config.js';
import { interleavedBiasNames, interleavedExpertNames } from '../model-config/interleaved-experts.js';
import { readLayerKinds } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import type { GluShape } from '../../shared/model/model-shape.js';
import { readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES } from '../model-config/tensor-names.js';

/** gpt-oss 20b and 120b: sinks, biases everywhere, sliding windows on every other layer, experts in MXFP4 as shipped. */
export const gptOss: ModelFamily = {
  name: 'gpt_oss',
  architectures: ['GptOssForCausalLM'],
  quantizations: ['mxfp4'],
  explained: {
    initial_context_length: { why: 'it is the length before the rope was stretched, which the rope says itself' },
  },
  readConfig(config) {
    config.only('hidden_act', ['silu', 'swish'], 'silu');
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const bias = config.flagOr(true, 'attention_bias');
    const sizes = { keyValueHeads: 8, headDim: 64 };
    const mixer = readAttention(config, { bias, outputBias: bias, sinks: true, normEpsilon }, sizes);
    config.only('norm_topk_prob', [true], true);
    config.notNull('sliding_window');
    const window = config.sizeOr(128, 'sliding_window');
    const kinds = readLayerKinds(config, ['sliding_attention', 'full_attention'], (layer) =>
      layer % 2 === 0 ? 'sliding_attention' : 'full_attention',
    );
    const routed = routerOf({ bias: true, normalize: true });
    const expert: GluShape = {
      intermediateSize: config.size('intermediate_size'),
      activation: 'sigmoid',
      alpha: Math.fround(config.numberOr(1.702, 'swiglu_alpha')),
      limit: Math.fround(config.positiveOr(7, 'swiglu_limit')),
      upOffset: 1,
      bias: true,
    };
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 150_000, headDim: mixer.headDim, parameters: YARN })],
      layers: kinds.map((kind) => layerOf({ ...mixer, window: kind === 'sliding_attention' ? window : 0 }, { routed })),
      expert,
    });
    const [gateUp, down] = ['mlp.experts.gate_up_proj', 'mlp.experts.down_proj'] as const;
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        sinks: 'self_attn.sinks',
        router: 'mlp.router.weight',
        routerBias: 'mlp.router.bias',
      },
      expert: interleavedExpertNames({ gateUp, down }, config.context.quantization === 'mxfp4' ? 'mxfp4' : 'values'),
      expertBias: interleavedBiasNames({ gateUp: `${gateUp}_bias`, down: `${down}_bias` }),
    };
    return modelConfig(config, shape, names, { eos: null });
  },
};

/** Parameters of the rope if config.json has none. */
const YARN = { rope_type: 'yarn', factor: 32, truncate: false, original_max_position_embeddings: 4096 };
