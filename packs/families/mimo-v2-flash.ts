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
import { forLayers, readLayerKinds, readSparseLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { type ReadRope, readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';
import type { AttentionMixer } from '../../shared/model/model-shape.js';

/** MiMo-V2-Flash: values of another size than keys; layers with a window have sinks, a rope and key-value heads of their own. */
export const mimoV2Flash: ModelFamily = {
  name: 'mimo_v2_flash',
  architectures: ['MiMoV2FlashForCausalLM'],
  readConfig(config) {
    const normEpsilon = Math.fround(config.positiveOr(1e-5, 'rms_norm_eps', 'layernorm_epsilon'));
    const full = readFull(config, normEpsilon);
    const windowed = readWindowed(config, full);
    const kinds = readKinds(config);
    const sparse = readSparse(config);
    const scale = config.isNull('routed_scaling_factor') ? { scale: 1 } : {};
    const routed = readBiasedRouter(config, scale);
    const dense = sparse.every((hasExperts) => hasExperts) ? null : readAlways(config, 'intermediate_size');
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: readRopes(config, [full, windowed]),
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
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: null });
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
    rotary: rotateHalves(1),
  };
}

/** The ropes of the layers without and with a window. Published files have a key of its own for the second one's theta. */
function readRopes(config: ConfigReader, [full, windowed]: readonly [AttentionMixer, AttentionMixer]): ReadRope[] {
  const [usual, other] = [
    { theta: 5e6, headDim: full.headDim, partialFactor: 0.334 },
    { theta: 10_000, headDim: windowed.headDim, partialFactor: 0.334 },
  ];
  if (config.within('rope_parameters') !== null) {
    return [readRope(config, usual, 'full_attention'), readRope(config, other, 'sliding_attention')];
  }
  const theta = config.positiveOr(other.theta, 'swa_rope_theta');
  const shared = config.picked('partial_rotary_factor', 'rope_scaling', 'max_position_embeddings');
  return [readRope(config, usual), readRope(shared, { ...other, theta })];
}

/** Published files mark the layers with a window by 1 in a list of numbers. */
function readKinds(config: ConfigReader): ('full_attention' | 'sliding_attention')[] {
  const key = 'hybrid_layer_pattern';
  const listed = readMarks(config, key);
  return readLayerKinds(
    config,
    ['full_attention', 'sliding_attention'],
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
