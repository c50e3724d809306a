import type { ConfigReader } from '../model-config/config-reader.js';
import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import { readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertNames } from '../model-config/tensor-names.js';

const LATENT_KEYS = ['kv_lora_rank', 'q_lora_rank', 'qk_nope_head_dim', 'qk_rope_head_dim', 'v_head_dim'];

/** Hunyuan-A13B: query and key norms after the rotation, shared experts without a gate. */
export const hunyuanMoe: ModelFamily = {
  name: 'hunyuan_v1_moe',
  architectures: ['HunYuanMoEV1ForCausalLM'],
  explained: {
    cla_share_factor: { why: 'no layer takes keys of another one, as use_cla is false' },
    ...Object.fromEntries(
      LATENT_KEYS.map((key) => [key, { why: 'attention is not latent', when: ['use_mla', false] } as const]),
    ),
  },
  readConfig(config) {
    config.only('use_cla', [false], false);
    config.only('mlp_bias', [false], false);
    config.only('norm_topk_prob', [true], true);
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const bias = config.flagOr(false, 'attention_bias');
    const headDim = config.sizeOr(null, 'head_dim', 'attention_head_dim');
    const mixer = readAttention(config, {
      bias,
      outputBias: bias,
      normEpsilon,
      normAfterRotation: true,
      ...(headDim === null ? {} : { headDim }),
      queryKeyNorm: config.flagOr(true, 'use_qk_norm') ? 'head' : 'none',
    });
    const size = readEqual(config, 'moe_intermediate_size', null) ?? config.size('intermediate_size');
    const shared = size * readEqual(config, 'num_shared_expert', 1);
    if (shared > 0) config.only('use_mixed_mlp_moe', [true], true);
    else config.idle('use_mixed_mlp_moe');
    const swiglu = readSwiglu(config, ['intermediate_size']);
    const always = shared === 0 ? null : { glu: { ...swiglu, intermediateSize: shared }, gated: false };
    const layers = readSparseBehindDense(config).map((sparse) =>
      layerOf(
        mixer,
        sparse ? { routed: routerOf({ normalize: true }), always } : { always: { glu: swiglu, gated: false } },
      ),
    );
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 10_000, headDim: mixer.headDim })],
      layers,
      experts: readEqualOr(config, 'num_experts', 'num_local_experts'),
      expertsPerToken: readEqualOr(config, 'moe_topk', 'num_experts_per_tok'),
      expert: { ...swiglu, intermediateSize: size },
    });
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('mlp', 'mlp.shared_mlp'),
        queryNorm: 'self_attn.query_layernorm.weight',
        keyNorm: 'self_attn.key_layernorm.weight',
        router: 'mlp.gate.wg.weight',
      },
      expert: expertNames('mlp.experts'),
    };
    return modelConfig(config, shape, names, { eos: 2 });
  },
};

/** Reads a number, or a list of one number for each layer. All experts of a model have one size here, so all numbers must be equal. */
function readEqual<T extends number | null>(config: ConfigReader, key: string, fallback: T): number | T {
  if (!config.isList(key)) return config.countOr(fallback, key);
  const [first, ...rest] = config.numbersOr([], key);
  if (first === undefined || !Number.isInteger(first) || first < 0 || rest.some((number) => number !== first)) {
    throw config.unsupported(key, [first, ...rest], 'one whole number for all layers');
  }
  return first;
}

/** As readEqual, for a number that may also have another key. */
function readEqualOr(config: ConfigReader, key: string, otherName: string): number {
  const number = readEqual(config, key, null);
  if (number === null) return config.size(key, otherName);
  config.repeats(otherName, number);
  return number;
}
