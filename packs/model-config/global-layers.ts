import type { ConfigReader } from './config-reader.js';
import { readAttention, rotateHalves } from './decoder-config.js';
import { readLayerKinds } from './layer-kinds.js';
import type { AttentionMixer } from '../../shared/model/model-shape.js';
import { type ReadRope, readRope } from './rope-config.js';

/** Layers with a sliding window, and global layers that see all positions. Global layers have their own heads, ropes and values. */
export interface GlobalLayers {
  mixers: AttentionMixer[];
  /** Two ropes: that of the layers with a window, then that of the global layers. */
  ropes: ReadRope[];
}

const HEAD_DIM = 256;
const GLOBAL_HEAD_DIM = 512;
/** The rope of global layers if config.json has no ropes. */
const PROPORTIONAL = { rope_type: 'proportional', partial_rotary_factor: 0.25 };

/** Reads the layers. Without a list, every sixth layer is global; the last one always is. */
export function readGlobalLayers(config: ConfigReader): GlobalLayers {
  const kinds = readLayerKinds(config, ['sliding_attention', 'full_attention'], (layer) =>
    (layer + 1) % 6 === 0 ? 'full_attention' : 'sliding_attention',
  );
  const mixers = kinds.map((kind, layer) =>
    readMixer(config, kind === 'full_attention' || layer === kinds.length - 1, layer),
  );
  const global = { theta: 1e6, headDim: headDimOf(config, mixers, true), parameters: PROPORTIONAL };
  const ropes = [
    readRope(config, { theta: 10_000, headDim: headDimOf(config, mixers, false) }, 'sliding_attention'),
    readRope(config, global, 'full_attention'),
  ];
  return { mixers, ropes };
}

/** The head size of all layers of a kind. They share one rope, so their sizes must be equal. */
function headDimOf(config: ConfigReader, mixers: readonly AttentionMixer[], global: boolean): number {
  const sizes = new Set(mixers.filter(({ window }) => (window === 0) === global).map(({ headDim }) => headDim));
  const [headDim = HEAD_DIM] = sizes;
  if (sizes.size > 1) throw config.unsupported('per_layer_config', [...sizes], 'one head_dim for all layers of a kind');
  return headDim;
}

function readWindow(config: ConfigReader): number {
  config.notNull('sliding_window');
  return config.sizeOr(512, 'sliding_window');
}

/** Sizes of global layers are in separate keys, or (newer) in per_layer_config. */
function readMixer(config: ConfigReader, global: boolean, layer: number): AttentionMixer {
  const bias = config.flagOr(false, 'attention_bias');
  const keysAreValues = global && config.flagOr(false, 'attention_k_eq_v');
  const perLayer = config.within('per_layer_config');
  // transformers pads the layer numbers with zeros.
  const key = perLayer?.objectKeys().find((number) => Number(number) === layer) ?? null;
  const newer = config.overlaid(key === null ? null : (perLayer?.within(key) ?? null));
  const keyValueHeads = newer.sizeOr(4, 'num_key_value_heads');
  const older = global && perLayer === null;
  if (!config.flagOr(false, 'attention_k_eq_v')) config.idle('num_global_key_value_heads');
  return readAttention(config, {
    bias,
    outputBias: bias,
    queryKeyNorm: 'head',
    valueNorm: true,
    scoreScale: 1,
    keysAreValues,
    headDim: older ? config.sizeOr(GLOBAL_HEAD_DIM, 'global_head_dim') : newer.sizeOr(HEAD_DIM, 'head_dim'),
    keyValueHeads: older && keysAreValues ? config.sizeOr(keyValueHeads, 'num_global_key_value_heads') : keyValueHeads,
    window: global ? 0 : readWindow(config),
    rotary: rotateHalves(global ? 1 : 0),
  });
}
