import { isDeepStrictEqual } from 'node:util';
import type { ConfigReader } from '../model-config/config-reader.js';
import {
  inverseRoot,
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSwiglu,
  rotateHalves,
  routerOf,
} from '../model-config/decoder-config.js';
import { forLayers, listOfLayers, readGuessingLayers, readLayerKinds } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { type ReadRope, readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, stackedExpertNames, zeroCentred } from '../model-config/tensor-names.js';
import type { AttentionMixer, GluShape, LayerShape } from '../../shared/model/model-shape.js';

const KINDS = ['full_attention', 'sliding_attention'] as const;
type Kind = (typeof KINDS)[number];

const VISION = 'it belongs to the vision tower';

/** Step-3.5, and the text of Step-3.7: heads and ropes by kind of layer, gated heads, GLUs with limits by layer. */
export const step3p5: ModelFamily = {
  name: 'step3p5',
  architectures: ['Step3p5ForCausalLM', 'Step3p7ForConditionalGeneration'],
  explained: {
    need_fp32_gate: { why: 'routers are always computed in FP32' },
    use_qk_norm: { why: 'queries and keys always have norms' },
    max_seq_len: { why: 'max_position_embeddings says it' },
    use_moe: { why: 'the layers say which of them have experts', only: [true] },
    ...Object.fromEntries(
      ['moe_every_n_layer', 'moe_layer_offset'].map((key) => [key, { why: 'other keys say which layers are dense' }]),
    ),
    mtp_layer_types: { why: 'it is of layers that only guess tokens ahead' },
    mtp_mlp_layer_types: { why: 'it is of layers that only guess tokens ahead' },
    sink: { why: 'this value switches off what is not computed here', only: [false] },
    use_bidirectional_attention: { why: 'this value switches off what is not computed here', only: [false] },
    use_rope_layers: { why: 'all layers are rotated', all: true },
    image_token_id: { why: VISION },
    projector_bias: { why: VISION },
    understand_projector_stride: { why: VISION },
  },
  readConfig(whole) {
    const text = whole.within('text_config');
    const config = text === null ? whole : whole.picked('tie_word_embeddings', 'eos_token_id').beside(text);
    for (const key of ['use_head_wise_attn_gate', 'gating', 'zero_centered', 'use_moe_router_bias']) {
      config.only(key, [true], true);
    }
    config.only('moe_router_activation', ['sigmoid'], 'sigmoid');
    config.only('att_impl_type', ['GQA'], 'GQA');
    const guessing = readGuessingLayers(config);
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const kinds = readLayerKinds(config, KINDS, () => 'full_attention', { list: 'layer_types', rule: [], guessing });
    const mixers = readMixers(config, kinds, normEpsilon, guessing);
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: readRopes(config, kinds, mixers[0]?.headDim ?? 0, guessing),
      layers: readLayers(config, mixers, guessing),
      expert: { ...readSwiglu(config, ['moe_intermediate_size']), limitOn: 'activation' },
      expertsPerToken: config.size('num_experts_per_tok', 'moe_top_k'),
    });
    const names = {
      ...DECODER_NAMES,
      model: { ...DECODER_NAMES.model, finalNorm: zeroCentred('norm.weight') },
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('mlp', 'share_expert'),
        mixerNorm: zeroCentred('input_layernorm.weight'),
        queryNorm: zeroCentred('self_attn.q_norm.weight'),
        keyNorm: zeroCentred('self_attn.k_norm.weight'),
        feedForwardNorm: zeroCentred('post_attention_layernorm.weight'),
        outputGate: 'self_attn.g_proj.weight',
        router: 'moe.gate.weight',
        choiceBias: 'moe.router_bias',
      },
      expert: stackedExpertNames('moe'),
      leftOut: [/^vision_model\./, /^vit_large_projector\./],
      guessingLayers: guessing,
    };
    return modelConfig(config, shape, names, { eos: null });
  },
};

/** Attention of each layer. Layers with a window have their own number of heads, or (newer) each layer has one in per_layer_config. */
function readMixers(
  config: ConfigReader,
  kinds: readonly Kind[],
  normEpsilon: number,
  guessing: number,
): AttentionMixer[] {
  const keyValueHeads = config.sizeOr(8, 'num_key_value_heads', 'num_attention_groups');
  const base = readAttention(
    config,
    { queryKeyNorm: 'head', outputGate: true, outputGateWidth: 'head', normEpsilon, keyValueHeads },
    { headDim: 128 },
  );
  const scoreScale = inverseRoot(config.positiveOr(base.headDim, 'query_pre_attn_scalar'));
  const setting = config.within('attention_other_setting');
  setting?.only('attention_type', ['sliding_attention'], 'sliding_attention');
  setting?.repeats('num_attention_groups', keyValueHeads);
  for (const key of ['head_dim', 'true_head_dim']) setting?.repeats(key, base.headDim);
  const older = setting?.sizeOr(null, 'num_attention_heads') ?? base.heads;
  const slidingHeads = config.sizeOr(older, 'num_sliding_attention_heads');
  if (setting !== null) config.repeats('num_sliding_attention_heads', older);
  const perLayer = config.within('per_layer_config');
  const behind = (number: string): boolean =>
    Number(number) >= kinds.length && Number(number) < kinds.length + guessing;
  perLayer?.idle(...perLayer.objectKeys().filter(behind));
  const windowed = kinds.includes('sliding_attention');
  if (!windowed) config.idle('sliding_window');
  const window = windowed ? config.size('sliding_window') : 0;
  const used = KINDS.filter((kind) => kinds.includes(kind));
  return kinds.map((kind, layer) => {
    const sliding = kind === 'sliding_attention';
    const key = perLayer?.objectKeys().find((number) => Number(number) === layer) ?? null;
    const own = key === null ? null : (perLayer?.within(key) ?? null);
    const heads = own?.sizeOr(null, 'num_attention_heads') ?? (sliding ? slidingHeads : base.heads);
    return { ...base, heads, scoreScale, window: sliding ? window : 0, rotary: rotateHalves(used.indexOf(kind)) };
  });
}

function readLayers(config: ConfigReader, mixers: readonly AttentionMixer[], guessing: number): LayerShape[] {
  const listed = readExpertLayers(config);
  const sparse = readLayerKinds(
    config,
    ['sparse', 'dense'],
    (layer) => ((listed?.has(layer) ?? layer >= 3) ? 'sparse' : 'dense'),
    { list: 'mlp_layer_types', rule: ['moe_layers_enum'], guessing },
  );
  const routed = routerOf({
    score: 'sigmoid',
    choiceBias: true,
    normalize: config.flagOr(true, 'norm_expert_weight'),
    scale: Math.fround(config.positiveOr(1, 'moe_router_scaling_factor')),
  });
  const expertLimits = readLimits(config, 'swiglu_limits', guessing);
  const limits = readLimits(config, 'swiglu_limits_shared', guessing);
  const shared = readSwiglu(config, ['share_expert_dim', 'share_expert_dims']);
  const dense = sparse.includes('dense') ? readSwiglu(config, ['intermediate_size']) : shared;
  return mixers.map((mixer, layer) => {
    const always = (glu: GluShape): LayerShape['always'] => ({ glu: limited(glu, limits[layer] ?? 0), gated: false });
    if (sparse[layer] === 'dense') return layerOf(mixer, { always: always(dense) });
    const limit = expertLimits[layer] ?? 0;
    return layerOf(mixer, { routed, always: always(shared), ...(limit > 0 ? { expertLimit: limit } : {}) });
  });
}

function limited(glu: GluShape, limit: number): GluShape {
  return limit > 0 ? { ...glu, limit, limitOn: 'activation' } : glu;
}

/** Limits of the GLUs by layer; 0: none. Files have 0 or null for that. */
function readLimits(config: ConfigReader, key: string, guessing: number): readonly number[] {
  const listed = listOfLayers(config, key, config.numbersOrNullsOr(null, key), guessing) ?? forLayers(config, () => 0);
  const limits = listed.map((limit) => limit ?? 0);
  const wrong = limits.find((limit) => limit < 0);
  if (wrong !== undefined) throw config.corrupt(`${key} has ${wrong}, expected numbers of at least 0`);
  return limits.map(Math.fround);
}

/** The layers with experts, by the older key: a text such as "3,4,5", or a list. Null: there is no such key. */
function readExpertLayers(config: ConfigReader): ReadonlySet<number> | null {
  const key = 'moe_layers_enum';
  if (!config.isText(key)) {
    const numbers = config.numbersOr(null, key);
    return numbers === null ? null : new Set(numbers);
  }
  const text = config.textOr('', key);
  if (!/^\s*\d+(\s*,\s*\d+)*\s*$/.test(text)) throw config.unsupported(key, text, 'numbers of layers, as in "3,4,5"');
  return new Set(text.split(',').map(Number));
}

/** The ropes of the kinds of layers that the model has, in the order of KINDS. */
function readRopes(config: ConfigReader, kinds: readonly Kind[], headDim: number, guessing: number): ReadRope[] {
  const used = KINDS.filter((kind) => kinds.includes(kind));
  if (config.has('rope_parameters')) {
    // transformers saves the keys of the published file beside them, and reads rope_parameters alone.
    config.idle('rope_theta', 'partial_rotary_factors', 'rope_scaling', 'yarn_only_types');
    const own = config.picked('rope_parameters', 'max_position_embeddings');
    return used.map((kind) => readRope(own, { theta: null, headDim }, kind));
  }
  const ofLayers = (key: string, usual: number): readonly number[] => {
    const one = config.isList(key) ? null : config.positiveOr(usual, key);
    if (one !== null) return kinds.map(() => one);
    return listOfLayers(config, key, config.numbersOr(null, key), guessing) ?? [];
  };
  const thetas = ofLayers('rope_theta', 10_000);
  const shares = ofLayers('partial_rotary_factors', 1);
  const scaledKinds = config.textsOr(null, 'yarn_only_types');
  if (config.has('rope_scaling') && !isDeepStrictEqual(scaledKinds, ['full_attention'])) {
    throw config.unsupported('yarn_only_types', scaledKinds, '["full_attention"]');
  }
  return used.map((kind) => {
    const ofKind = (key: string, list: readonly number[]): number => {
      const values = new Set(list.filter((_, layer) => kinds[layer] === kind));
      const [value = 0] = values;
      if (values.size !== 1) throw config.unsupported(key, list, 'one value for all layers of a kind');
      return value;
    };
    const scaled = kind === 'full_attention' ? ['rope_scaling'] : [];
    const parameters = {
      rope_theta: ofKind('rope_theta', thetas),
      partial_rotary_factor: ofKind('partial_rotary_factors', shares),
    };
    const reader = config.picked('max_position_embeddings', ...scaled).withFallbacks(parameters);
    return readRope(reader, { theta: null, headDim });
  });
}
