import { readBiasedRouter } from '../model-config/biased-router.js';
import { BLOCK_INDEXER_NAMES, readBlockIndexers } from '../model-config/block-indexer.js';
import type { ConfigReader } from '../model-config/config-reader.js';
import { layerOf, modelConfig, readAttention, readDecoder } from '../model-config/decoder-config.js';
import { forLayers, listOfLayers, readSparseLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertNames, NUMBERED, zeroCentred } from '../model-config/tensor-names.js';
import type { GluShape, LayerShape } from '../../shared/model/model-shape.js';

const IMAGES = 'it belongs to images and videos';

/** The text part of MiniMax-M3: attention to the blocks that an indexer chooses, a sigmoid router with a bias, gpt-oss's limited GLU everywhere. */
export const minimaxM3: ModelFamily = {
  name: 'minimax_m3_vl_text',
  architectures: ['MiniMaxM3SparseForConditionalGeneration'],
  explained: {
    attention_output_gate: { why: 'attention has no gate', only: [false] },
    img_token_compression_config: { why: IMAGES },
    merged_hidden_size: { why: IMAGES },
    multimodal_projector_bias: { why: IMAGES },
    num_reward_heads: { why: 'there is none', only: [0] },
    process_image_mode: { why: IMAGES },
    projector_hidden_size: { why: IMAGES },
    use_gemma_norm: { why: 'norms always store what is added to 1', only: [true] },
  },
  readConfig(whole) {
    const text = whole.within('text_config');
    const config = text === null ? whole : whole.picked('tie_word_embeddings', 'eos_token_id').beside(text);
    config.only('use_qk_norm', [true], true);
    config.only('qk_norm_type', ['per_head'], 'per_head');
    const mixer = readAttention(config, { queryKeyNorm: 'head' }, { keyValueHeads: 4, headDim: 128 });
    const indexers = readBlockIndexers(config, mixer.keyValueHeads);
    const feedForward = readFeedForward(config);
    const layers = indexers.map((blockIndexer, layer) =>
      layerOf(blockIndexer === undefined ? mixer : { ...mixer, blockIndexer }, feedForward[layer] ?? {}),
    );
    const rotaryDim = config.sizeOr(64, 'rotary_dim');
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 5e6, headDim: mixer.headDim, rotaryDim })],
      layers,
      expert: readGlu(config, 'intermediate_size'),
    });
    const before = text === null ? '' : 'language_model.';
    const names = {
      ...DECODER_NAMES,
      prefix: `${before}${DECODER_NAMES.prefix}`,
      model: {
        ...DECODER_NAMES.model,
        finalNorm: zeroCentred('norm.weight'),
        lmHead: `${before}${DECODER_NAMES.model.lmHead}`,
      },
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('mlp', 'block_sparse_moe.shared_experts'),
        ...BLOCK_INDEXER_NAMES,
        mixerNorm: zeroCentred('input_layernorm.weight'),
        queryNorm: zeroCentred('self_attn.q_norm.weight'),
        keyNorm: zeroCentred('self_attn.k_norm.weight'),
        feedForwardNorm: zeroCentred('post_attention_layernorm.weight'),
        router: 'block_sparse_moe.gate.weight',
        choiceBias: 'block_sparse_moe.e_score_correction_bias',
      },
      expert: expertNames('block_sparse_moe.experts', NUMBERED),
      leftOut: [
        new RegExp(`^${before.replaceAll('.', String.raw`\.`)}model\\.mtp`),
        /^(vision_tower|multi_modal_projector|patch_merge_mlp)\./,
      ],
    };
    return modelConfig(config, shape, names, { eos: 200_020 });
  },
};

/** Experts and a shared network, or a dense one, for each layer. */
function readFeedForward(config: ConfigReader): Partial<LayerShape>[] {
  const key = 'moe_layer_freq';
  const listed = listOfLayers(config, key, config.numbersOr(null, key)) ?? forLayers(config, () => 1);
  const sparse = readSparseLayers(config, (layer) => listed[layer] !== 0, [key]);
  config.only('n_shared_experts', [1], 1);
  config.only('norm_topk_prob', [true], true);
  config.only('n_group', [1], 1);
  config.only('topk_group', [1], 1);
  const choiceBias = config.flagOr(true, 'use_routing_bias');
  const routed = readBiasedRouter(
    config,
    { choiceBias, normalize: true, sumEpsilon: 0 },
    { groups: 1, groupsKept: 1, scale: 2 },
  );
  const shared = { glu: readGlu(config, 'shared_intermediate_size', 3072), gated: false };
  if (!sparse.includes(false)) config.idle('dense_intermediate_size');
  const dense = sparse.includes(false)
    ? { glu: readGlu(config, 'dense_intermediate_size', 12_288), gated: false }
    : null;
  return sparse.map((hasExperts) => (hasExperts ? { routed, always: shared } : { always: dense }));
}

/** gpt-oss's GLU. transformers computes it whatever hidden_act says. */
function readGlu(config: ConfigReader, key: string, usual: number | null = null): GluShape {
  config.only('hidden_act', ['swigluoai', 'silu'], 'silu');
  return {
    intermediateSize: usual === null ? config.size(key) : config.sizeOr(usual, key),
    activation: 'sigmoid',
    alpha: Math.fround(config.numberOr(1.702, 'swiglu_alpha')),
    limit: Math.fround(config.positiveOr(7, 'swiglu_limit')),
    upOffset: 1,
    bias: false,
  };
}
