import { readBiasedRouter } from '../model-config/biased-router.js';
import type { ConfigReader } from '../model-config/config-reader.js';
import {
  layerOf,
  modelConfig,
  readAlways,
  readAttention,
  readDecoder,
  readSwiglu,
  inverseRoot,
  rotateHalves,
} from '../model-config/decoder-config.js';
import { draftHeadApart } from '../model-config/draft-heads.js';
import { forLayers, readLayerKinds, readSparseLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { type ReadRope, readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';
import type { AttentionMixer } from '../../shared/model/model-shape.js';

const KINDS = ['full_attention', 'sliding_attention'] as const;
type Kind = (typeof KINDS)[number];

/** MiMo-V2-Flash: values of another size than keys; layers with a window have sinks, a rope and key-value heads of their own. */
export const mimoV2Flash: ModelFamily = {
  name: 'mimo_v2_flash',
  architectures: ['MiMoV2FlashForCausalLM'],
  readConfig(config) {
    const normEpsilon = Math.fround(config.positiveOr(1e-5, 'rms_norm_eps', 'layernorm_epsilon'));
    const kinds = readKinds(config);
    const used = KINDS.filter((kind) => kinds.includes(kind));
    const full = readFull(config, normEpsilon);
    const windowed = { ...readWindowed(config, full), rotary: rotateHalves(used.indexOf('sliding_attention')) };
    const ropes = readRopes(config, used, { full_attention: full.headDim, sliding_attention: windowed.headDim });
    const sparse = readSparse(config);
    const scale = config.isNull('routed_scaling_factor') ? { scale: 1 } : {};
    const routed = readBiasedRouter(config, scale);
    const dense = sparse.every((hasExperts) => hasExperts) ? null : readAlways(config, 'intermediate_size');
    const shape = readDecoder(config, {
      normEpsilon,
      ropes,
      layers: kinds.map((kind, layer) =>
        layerOf(kind === 'full_attention' ? full : windowed, sparse[layer] === true ? { routed } : { always: dense }),
      ),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, sinks: 'self_attn.attention_sink_bias' },
      leftOut: [/^model\.mtp\./],
    };
    const forms = expertForms(names, 'mlp.experts');
    const hasHead = dense !== null && used.includes('sliding_attention');
    const draftHead = hasHead ? draftHeadApart(layerOf(windowed, { always: dense }), forms[0]) : null;
    return modelConfig(config, shape, forms, { eos: null, draftHead });
  },
};

function readFull(config: ConfigReader, normEpsilon: number): AttentionMixer {
  const key = 'attention_value_scale';
  const own = {
    bias: config.flagOr(false, 'attention_bias'),
    normEpsilon,
    sinks: config.flagOr(false, 'add_full_attention_sink_bias'),
    valueDim: config.sizeOr(128, 'v_head_dim'),
    valueScale: config.isNull(key) ? 1 : Math.fround(config.positiveOr(0.707, key)),
  };
  return readAttention(config, own, { keyValueHeads: 4, headDim: 192 });
}

/** The layers with a window: what they have of their own is as in the others, but for twice as many key-value heads. */
function readWindowed(config: ConfigReader, full: AttentionMixer): AttentionMixer {
  const window = config.sizeOr(128, 'sliding_window');
  for (const key of ['sliding_window_size', 'attention_chunk_size']) config.repeats(key, window);
  const headDim = config.sizeOr(full.headDim, 'swa_head_dim');
  return {
    ...full,
    heads: config.sizeOr(full.heads, 'swa_num_attention_heads'),
    keyValueHeads: config.sizeOr(2 * full.keyValueHeads, 'swa_num_key_value_heads'),
    headDim,
    valueDim: config.sizeOr(full.valueDim ?? full.headDim, 'swa_v_head_dim'),
    scoreScale: inverseRoot(headDim),
    sinks: config.flagOr(true, 'add_swa_attention_sink_bias'),
    window,
  };
}

/** Published files have a key of its own for the theta of layers with a window. */
const THETAS = {
  full_attention: { key: 'rope_theta', usual: 5e6 },
  sliding_attention: { key: 'swa_rope_theta', usual: 10_000 },
} as const;
const USUAL_SHARE = 0.334;

/**
 * The ropes of the kinds of layers that the model has. A file that transformers has saved again has rope_parameters and beside them the keys of the
 * published file, which must agree, but for the share: as in transformers, it is only for kinds that have none.
 */
function readRopes(
  config: ConfigReader,
  used: readonly Kind[],
  headDims: Readonly<Record<Kind, number>>,
): readonly ReadRope[] {
  const given = config.within('rope_parameters');
  const older = config.picked('partial_rotary_factor', 'rope_scaling', 'max_position_embeddings');
  const newer = config.picked('rope_parameters', 'max_position_embeddings');
  const share = config.positiveOr(null, 'partial_rotary_factor');
  const ropes = KINDS.map((kind) => {
    const { key, usual } = THETAS[kind];
    const headDim = headDims[kind];
    if (given === null) {
      return readRope(older, { headDim, theta: config.positiveOr(usual, key), partialFactor: USUAL_SHARE });
    }
    if (!used.includes(kind) && !given.has(kind)) {
      config.idle(key);
      return null;
    }
    const theta = given.within(kind)?.positiveOr(null, 'rope_theta') ?? usual;
    config.repeats(key, theta);
    return readRope(newer, { headDim, theta, partialFactor: share ?? 1 }, kind);
  });
  return ropes.filter(
    (rope, kind): rope is ReadRope => rope !== null && used.includes(KINDS[kind] ?? 'full_attention'),
  );
}

/** Published files mark the layers with a window by 1 in a list of numbers. */
function readKinds(config: ConfigReader): Kind[] {
  const key = 'hybrid_layer_pattern';
  const listed = readMarks(config, key);
  return readLayerKinds(
    config,
    KINDS,
    (layer) =>
      (listed === null ? layer !== 0 && (layer + 1) % 6 !== 0 : listed[layer] === true)
        ? 'sliding_attention'
        : 'full_attention',
    { list: 'layer_types', rule: [key] },
  );
}

/** Published files mark the layers with experts by 1 in a list of numbers. */
function readSparse(config: ConfigReader): boolean[] {
  const key = 'moe_layer_freq';
  const listed = readMarks(config, key);
  return readSparseLayers(config, (layer) => (listed === null ? layer > 0 : listed[layer] === true), [key]);
}

/** A list of 0 and 1, one for each layer; null: there is none. */
function readMarks(config: ConfigReader, key: string): boolean[] | null {
  const listed = config.numbersOr(null, key);
  if (listed === null) return null;
  const layers = forLayers(config, (layer) => layer).length;
  if (listed.length !== layers) {
    throw config.corrupt(`${key} has ${listed.length} entries, and num_hidden_layers is ${layers}`);
  }
  const other = listed.find((mark) => mark !== 0 && mark !== 1);
  if (other !== undefined) throw config.unsupported(key, other, '0 or 1 for each layer');
  return listed.map((mark) => mark === 1);
}
