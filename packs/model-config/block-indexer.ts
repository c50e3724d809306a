import type { BlockIndexerShape } from '../../shared/model/model-shape.js';
import type { TensorNames } from './checkpoint-layout.js';
import type { ConfigReader } from './config-reader.js';
import { readNormEpsilon, rotateHalves } from './decoder-config.js';
import { forLayers, listOfLayers, readLayerKinds } from './layer-kinds.js';
import { zeroCentred } from './tensor-names.js';

/** Keys of the sizes: those of transformers 5.18, and the older ones in sparse_attention_config. */
const HEADS = ['index_n_heads', 'sparse_num_index_heads'] as const;
const DIMENSIONS = ['index_head_dim', 'sparse_index_dim'] as const;
const BLOCK_SIZE = ['index_block_size', 'sparse_block_size'] as const;
const BLOCKS = ['index_topk_blocks', 'sparse_topk_blocks'] as const;
const LOCAL_BLOCKS = ['index_local_blocks', 'sparse_local_block'] as const;
const SIZES = [HEADS, DIMENSIONS, BLOCK_SIZE, BLOCKS, LOCAL_BLOCKS];

const FREQUENCY = 'sparse_attention_freq';
/** A list: other values than 0 say that the layer's indexer has no values of its own, which are not computed here. */
const NO_VALUES = 'sparse_disable_index_value';

/** Reads the indexer of MiniMax-M3 in each layer; undefined: the layer has none. `keyValueHeads`: those of attention. */
export function readBlockIndexers(config: ConfigReader, keyValueHeads: number): (BlockIndexerShape | undefined)[] {
  const older = config.within('sparse_attention_config');
  const sparse = readIndexedLayers(config, older);
  const keys = ['use_sparse_attention', 'sparse_init_block', 'sparse_score_type', FREQUENCY, NO_VALUES];
  const isIndexed = sparse.includes(true);
  if (!isIndexed) {
    config.idle(...SIZES.map(([key]) => key));
    older?.idle(...SIZES.map(([, key]) => key), ...keys);
    return sparse.map(() => undefined);
  }
  older?.only('use_sparse_attention', [true], true);
  older?.only('sparse_init_block', [0], 0);
  older?.only('sparse_score_type', ['max'], 'max');
  checkValues(older, sparse);
  const both = config.beside(older);
  const heads = both.sizeOr(4, ...HEADS);
  if (heads !== keyValueHeads) {
    const isOlder = older?.has(HEADS[1]) === true;
    throw (isOlder ? older : config).unsupported(
      HEADS[isOlder ? 1 : 0],
      heads,
      `the ${keyValueHeads} key-value heads of attention`,
    );
  }
  const indexer = {
    headDim: both.sizeOr(128, ...DIMENSIONS),
    blockSize: both.sizeOr(128, ...BLOCK_SIZE),
    blocks: both.sizeOr(16, ...BLOCKS),
    localBlocks: both.countOr(1, ...LOCAL_BLOCKS),
    normEpsilon: readNormEpsilon(config),
    rotary: rotateHalves(0),
  };
  return sparse.map((own) => (own ? indexer : undefined));
}

/** True for each layer with an indexer: by layer_types, or by the older list of numbers. */
function readIndexedLayers(config: ConfigReader, older: ConfigReader | null): boolean[] {
  const list = older?.numbersOr(null, FREQUENCY) ?? null;
  const frequency = listOfLayers(config, FREQUENCY, list) ?? forLayers(config, () => 0);
  const kinds = readLayerKinds(
    config,
    ['full_attention', 'minimax_m3_sparse'],
    (layer) => (frequency[layer] === 0 ? 'full_attention' : 'minimax_m3_sparse'),
    { list: 'layer_types', rule: list === null ? [] : ['sparse_attention_config'] },
  );
  return kinds.map((kind) => kind === 'minimax_m3_sparse');
}

function checkValues(older: ConfigReader | null, sparse: readonly boolean[]): void {
  const list = older?.numbersOr(null, NO_VALUES) ?? null;
  if (older === null || list === null) return;
  const valued = sparse.findIndex((own, layer) => own && (list[layer] ?? 0) === 0);
  if (valued >= 0) throw older.unsupported(NO_VALUES, list, `1 for layer ${valued}, which has an indexer`);
}

/** Names of its tensors. */
export const BLOCK_INDEXER_NAMES: TensorNames['layer'] = {
  indexQuery: 'self_attn.index_q_proj.weight',
  indexQueryNorm: zeroCentred('self_attn.index_q_norm.weight'),
  indexKey: 'self_attn.index_k_proj.weight',
  indexKeyNorm: zeroCentred('self_attn.index_k_norm.weight'),
};
