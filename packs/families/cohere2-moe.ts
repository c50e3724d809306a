import type { ConfigReader } from '../model-config/config-reader.js';
import {
  layerOf,
  modelConfig,
  readAlways,
  readAttention,
  readDecoder,
  readSwiglu,
  rotateNeighbours,
  routerOf,
} from '../model-config/decoder-config.js';
import { readLayerKinds, readSparseLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';
import type { AttentionMixer, ModelShape, RouterShape } from '../../shared/model/model-shape.js';

/** Cohere2-MoE: attention and experts side by side behind one norm, rotated in layers with a window; experts and a shared network may be averaged. */
export const cohere2Moe: ModelFamily = {
  name: 'cohere2_moe',
  architectures: ['Cohere2MoeForCausalLM'],
  explained: {
    position_embedding_type: { why: 'it is what is computed', only: ['rope_gptj'] },
    use_parallel_block: { why: 'it is what is computed', only: [true] },
    use_gated_activation: { why: 'it is what is computed', only: [true] },
  },
  readConfig(whole) {
    // transformers takes null for its default, which is true.
    const config = whole.isNull('tie_word_embeddings') ? whole.withFallbacks({ tie_word_embeddings: true }) : whole;
    const { norm, normEpsilon } = readNorm(config);
    const dense = config.countOr(0, 'first_k_dense_replace');
    const sparse = readSparseLayers(config, (layer) => layer >= dense);
    const mixers = readMixers(config, normEpsilon, { dense, sparse });
    const routed = readRouter(config);
    const shared = readAlways(config, 'intermediate_size', config.countOr(0, 'num_shared_experts'));
    const strategy = config.only('shared_expert_combination_strategy', ['average', 'sum'], 'average');
    const average = shared !== null && strategy === 'average' ? { feedForwardScale: 0.5 } : {};
    const key = config.has('prefix_dense_intermediate_size') ? 'prefix_dense_intermediate_size' : 'intermediate_size';
    const network = sparse.every((hasExperts) => hasExperts) ? null : readAlways(config, key);
    if (network === null) config.idle('prefix_dense_intermediate_size');
    const shape = readDecoder(config, {
      norm,
      normEpsilon,
      logitDivisor: Math.fround(1 / config.positiveOr(0.0625, 'logit_scale')),
      ropes: [readRope(config, { theta: 10_000, headDim: mixers[0]?.headDim ?? 0 })],
      layers: mixers.map((mixer, layer) =>
        layerOf(mixer, {
          parallel: true,
          ...(sparse[layer] === true ? { routed, always: shared, ...average } : { always: network }),
        }),
      ),
      expert: readSwiglu(config, ['intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, ...alwaysNames('mlp', 'mlp.shared_experts') },
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { tied: true, eos: 255_001 });
  },
};

/** RMS norms where rms_norm_eps is a number, else LayerNorm without a bias. */
function readNorm(config: ConfigReader): Pick<ModelShape, 'norm' | 'normEpsilon'> {
  const epsilon = config.positiveOr(null, 'rms_norm_eps');
  if (epsilon === null) {
    return { norm: 'layer-without-bias', normEpsilon: Math.fround(config.positiveOr(1e-5, 'layer_norm_eps')) };
  }
  config.idle('layer_norm_eps');
  return { norm: 'rms', normEpsilon: Math.fround(epsilon) };
}

/** The first layers, which are dense, have a pattern of their own, and the others' pattern counts from 0 again. */
function readMixers(
  config: ConfigReader,
  normEpsilon: number,
  { dense, sparse }: { dense: number; sparse: readonly boolean[] },
): AttentionMixer[] {
  const bias = config.flagOr(false, 'attention_bias');
  const own = { bias, outputBias: bias, normEpsilon, rotary: rotateNeighbours(0) } as const;
  const rotated = readAttention(config, own, { headDim: 128 });
  const window = config.isNull('sliding_window') ? 0 : config.sizeOr(4096, 'sliding_window');
  const [first, others] = [
    config.sizeOr(1, 'prefix_dense_sliding_window_pattern'),
    config.sizeOr(4, 'sliding_window_pattern'),
  ];
  const kinds = readLayerKinds(config, ['sliding_attention', 'full_attention'], (layer) => {
    const [place, pattern] = layer < dense ? [layer, first] : [layer - dense, others];
    return (place + 1) % pattern === 0 ? 'full_attention' : 'sliding_attention';
  });
  return kinds.map((kind, layer) => {
    if (kind === 'sliding_attention' && window > 0) return { ...rotated, window };
    return sparse[layer] === false && first === 1 ? rotated : { ...rotated, rotary: null };
  });
}

/** Softmax over the logits of the chosen experts is softmax over all of them, renormalized. */
function readRouter(config: ConfigReader): RouterShape {
  const score = config.only('expert_selection_fn', ['softmax', 'sigmoid'], 'softmax');
  if (score === 'sigmoid') return routerOf({ score, normalize: config.flagOr(true, 'norm_topk_prob') });
  config.idle('norm_topk_prob');
  return routerOf({ normalize: true });
}
