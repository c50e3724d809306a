import { readBiasedRouter } from '../model-config/biased-router.js';
import type { TensorNames } from '../model-config/checkpoint-layout.js';
import type { ConfigReader } from '../model-config/config-reader.js';
import {
  modelConfig,
  readDecoder,
  readNormEpsilon,
  readSharedOrDense,
  readSwiglu,
} from '../model-config/decoder-config.js';
import { channelDeltaNames, readChannelDelta, readChannelDeltaLayers } from '../model-config/delta-net.js';
import {
  INDEXED_KINDS,
  INDEXER_EXPLAINED,
  indexedNames,
  INDEX_POOL_NAMES,
  readPoolIndexer,
} from '../model-config/indexer.js';
import { readPlainLatentAttention } from '../model-config/latent-attention.js';
import { readLayerKinds, readListedOrBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { MIXED_STREAM_NAMES, readMixedStreams } from '../model-config/residual-streams.js';
import { expertForms } from '../model-config/tensor-names.js';
import type { DeltaMixer, GluShape, LatentMixer, LayerShape } from '../../shared/model/model-shape.js';

/**
 * The text part of GLM-5-Next: residual streams that end in their mean, Kimi delta attention with a floor of its decays, in every fourth layer latent
 * attention without rotation to the pools that an indexer chooses, and limited networks everywhere.
 */
export const glm5Next: ModelFamily = {
  name: 'glm5_next',
  architectures: ['Glm5NextForConditionalGeneration'],
  explained: {
    ...INDEXER_EXPLAINED,
    indexer_rope_interleave: { why: 'the indexer rotates nothing' },
    mhc: { why: 'it says that there are residual streams', only: [true] },
    mla_use_nope: { why: 'latent attention rotates nothing', only: [true] },
    index_topk_freq: { why: 'no layer shares a choice', only: [1] },
    index_skip_topk_offset: { why: 'no layer shares a choice' },
  },
  readConfig(whole) {
    const text = whole.within('text_config');
    const config = text === null ? whole : whole.picked('tie_word_embeddings', 'eos_token_id').beside(text);
    // Nothing is rotated.
    config.idle('rope_theta', 'rope_scaling', 'rope_parameters');
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const latent = readLatent(config, normEpsilon);
    const delta = readDelta(config, normEpsilon);
    const full = readFullLayers(config);
    const limit = Math.fround(config.positiveOr(10, 'swiglu_limit'));
    const limited = (glu: GluShape): GluShape => ({ ...glu, limit });
    const routed = readBiasedRouter(config, {}, { groups: 1, groupsKept: 1, scale: 2.5 });
    const shared = config.countOr(1, 'n_shared_experts');
    const layers = readSharedOrDense(config, readListedOrBehindDense(config, 3), { mixer: latent, routed, shared });
    const layerOf = ({ always, ...layer }: LayerShape, isFull: boolean): LayerShape => ({
      ...layer,
      mixer: isFull ? latent : delta,
      always: always && { ...always, glu: limited(always.glu) },
    });
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [],
      layers: layers.map((layer, number) => layerOf(layer, full[number] === true)),
      expert: limited(readSwiglu(config, ['moe_intermediate_size'])),
      streams: { ...readMixedStreams(config), ending: 'mean' },
    });
    const names = namesOf(config, latent, delta);
    const prefix = text === null ? names.prefix : 'model.language_model.';
    const forms = expertForms({ ...names, prefix, leftOut: [/^model\.visual\./] }, 'mlp.experts');
    return modelConfig(config, shape, forms, { eos: null });
  },
};

function readLatent(config: ConfigReader, normEpsilon: number): LatentMixer {
  const key = 'qk_rope_head_dim';
  const ropeSize = config.countOr(0, key);
  if (ropeSize !== 0) throw config.unsupported(key, ropeSize, '0');
  const plain = readPlainLatentAttention(config, 1536, ropeSize);
  return { ...plain, normEpsilon, indexer: readPoolIndexer(config) };
}

function readDelta(config: ConfigReader, normEpsilon: number): DeltaMixer {
  const key = 'linear_lower_bound';
  config.notNull(key);
  const own = config.within('linear_attn_config');
  own?.only('safe_gate', [true], true);
  const said = own?.numberOr(null, 'gate_lower_bound') ?? null;
  if (said !== null) config.repeats(key, said);
  const decayFloor = Math.fround(said ?? config.numberOr(-5, key));
  return { ...readChannelDelta(config, normEpsilon, 64), decayFloor };
}

/** True for each layer with latent attention. Each of these chooses for itself. */
function readFullLayers(config: ConfigReader): boolean[] {
  readLayerKinds(config, ['full'], () => 'full', { list: 'indexer_types', rule: [] });
  const listed = readChannelDeltaLayers(config, 0);
  const kinds = readLayerKinds(config, ['linear_attention', 'full_attention', ...INDEXED_KINDS], (layer) =>
    (listed?.[layer] ?? layer % 4 !== 3) ? 'linear_attention' : 'indexed_attention',
  );
  const full = kinds.map((kind) => kind !== 'linear_attention');
  const wrong = full.findIndex((isFull, layer) => listed?.[layer] === isFull);
  if (wrong !== -1) throw config.corrupt(`layer_types and linear_attn_config say different kinds of layer ${wrong}`);
  return full;
}

function namesOf(config: ConfigReader, latent: LatentMixer, delta: DeltaMixer) {
  const names = indexedNames(config, latent);
  const layer: TensorNames['layer'] = {
    ...names.layer,
    ...INDEX_POOL_NAMES,
    ...channelDeltaNames(delta),
    decayLog: 'self_attn.A_log',
    ...MIXED_STREAM_NAMES,
  };
  return { ...names, layer };
}
