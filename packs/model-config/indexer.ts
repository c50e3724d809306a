import type { IndexerShape, LatentMixer } from '../../shared/model/model-shape.js';
import type { TensorNames } from './checkpoint-layout.js';
import type { ConfigReader } from './config-reader.js';
import { rotateHalves, rotateNeighbours } from './decoder-config.js';
import type { ExplainedKeys } from './explained-keys.js';
import { latentNames } from './latent-attention.js';
import { readGuessingLayers, readLayerKinds } from './layer-kinds.js';
import { alwaysNames, DECODER_NAMES } from './tensor-names.js';

/** Epsilon of the LayerNorm of an indexer's keys, independent of the model's norms. */
const KEY_NORM_EPSILON = Math.fround(1e-6);

/** A family's own values for keys that config.json lacks. */
interface IndexerDefaults {
  heads: number;
  /** Rotated pairs are neighbours, not halves. The attention beside it may have other pairs. */
  neighbours: boolean;
}

/** Reads the indexer of DeepSeek-V3.2 and GLM-5, whose first dimensions are rotated as those of the attention are. */
export function readIndexer(config: ConfigReader, { heads, neighbours }: IndexerDefaults): IndexerShape {
  return {
    heads: config.sizeOr(heads, 'index_n_heads'),
    headDim: config.sizeOr(128, 'index_head_dim'),
    positions: config.sizeOr(2048, 'index_topk'),
    normEpsilon: KEY_NORM_EPSILON,
    rotary: config.flagOr(neighbours, 'indexer_rope_interleave') ? rotateNeighbours(0) : rotateHalves(0),
  };
}

/** Reads the indexer of GLM-5-Next, which chooses pools of positions and rotates nothing. The unfinished pool is always seen. */
export function readPoolIndexer(config: ConfigReader): IndexerShape {
  config.only('index_kpool_always_select_tail', [true], true);
  config.only('index_kpool_compress', [true], true);
  return {
    heads: config.sizeOr(32, 'index_n_heads'),
    headDim: config.sizeOr(128, 'index_head_dim'),
    positions: config.sizeOr(2048, 'index_topk'),
    normEpsilon: KEY_NORM_EPSILON,
    rotary: null,
    poolPositions: config.sizeOr(16, 'index_kpool'),
  };
}

/** Names of one kind of layers, which changed from version to version of transformers. */
export const INDEXED_KINDS = ['indexed_attention', 'deepseek_sparse_attention', 'dynamic_sparse_attention'] as const;

/** All layers have indexers or share what one has chosen, and have no biases in their networks. */
export function checkIndexed(config: ConfigReader): void {
  config.only('mlp_bias', [false], false);
  readLayerKinds(config, INDEXED_KINDS, () => 'indexed_attention');
}

/** Keys of config.json beside an indexer that change no answer. */
export const INDEXER_EXPLAINED: ExplainedKeys = {
  index_share_for_mtp_iteration: { why: 'it is of layers that only guess tokens ahead', only: [true] },
  moe_router_dtype: { why: 'routers are always computed in FP32', only: ['float32'] },
  output_indexer_loss: { why: 'it says what else a program returns beside the logits', only: [false] },
};

/** Names of an indexer's tensors. */
const INDEXER_NAMES: TensorNames['layer'] = {
  indexQuery: 'self_attn.indexer.wq_b.weight',
  indexKey: 'self_attn.indexer.wk.weight',
  indexKeyNorm: 'self_attn.indexer.k_norm.weight',
  indexKeyNormBias: 'self_attn.indexer.k_norm.bias',
  indexWeights: 'self_attn.indexer.weights_proj.weight',
};

/** Names of what an indexer of pools has beside these. */
export const INDEX_POOL_NAMES: TensorNames['layer'] = {
  indexPoolGate: 'self_attn.indexer.index_kpool_compress_gate',
  indexPoolGateBias: ({ layer: { mixer } }) => {
    const indexer = mixer.kind === 'latent' ? mixer.indexer : undefined;
    const dimensions = [indexer?.poolPositions ?? 0, indexer?.headDim ?? 0];
    return { name: 'self_attn.indexer.index_kpool_compress_ape', dimensions };
  },
};

/** Names of a model of DeepSeek's form whose latent attention has an indexer. */
export function indexedNames(config: ConfigReader, mixer: LatentMixer) {
  const layer = { ...latentNames(mixer), ...INDEXER_NAMES, ...alwaysNames('mlp', 'mlp.shared_experts') };
  return {
    ...DECODER_NAMES,
    layer: { ...DECODER_NAMES.layer, ...layer },
    guessingLayers: readGuessingLayers(config),
  };
}
