import type { ConfigReader } from './config-reader.js';
import { readAttention, rotateHalves } from './decoder-config.js';
import { readLayerKinds } from './layer-kinds.js';
import type { AttentionMixer } from './model-shape.js';
import { type ReadRope, readRope } from './rope-config.js';

/** Layers that look back through a window, and global ones that see all: with heads, ropes and values of their own. */
export interface GlobalLayers {
  mixers: AttentionMixer[];
  /** Of layers with a window, of global layers. */
  ropes: ReadRope[];
}

const HEAD_DIM = 256;
const GLOBAL_HEAD_DIM = 512;

/** Every sixth layer is global where no list says so; the last one always is. */
export function readGlobalLayers(config: ConfigReader): GlobalLayers {
  const kinds = readLayerKinds(config, ['sliding_attention', 'full_attention'], (layer) =>
    (layer + 1) % 6 === 0 ? 'full_attention' : 'sliding_attention',
  );
  const mixers = kinds.map((kind, layer) =>
    readMixer(config, kind === 'full_attention' || layer === kinds.length - 1, layer),
  );
  const headDim = (window: boolean): number =>
    (mixers.find((mixer) => mixer.window > 0 === window) ?? mixers[0])?.headDim ?? HEAD_DIM;
  const ropes = [
    readRope(config, { theta: 10_000, headDim: headDim(true) }, 'sliding_attention'),
    readRope(config, { theta: 1e6, headDim: headDim(false) }, 'full_attention'),
  ];
  return { mixers, ropes };
}

/** Sizes of global layers stand under keys of their own, or (newer) in per_layer_config. */
function readMixer(config: ConfigReader, global: boolean, layer: number): AttentionMixer {
  const bias = config.flagOr(false, 'attention_bias');
  const keysAreValues = global && config.flagOr(false, 'attention_k_eq_v');
  const perLayer = config.within('per_layer_config');
  const newer = config.overlaid(perLayer?.within(String(layer)) ?? null);
  const keyValueHeads = newer.size('num_key_value_heads');
  const older = global && perLayer === null;
  return readAttention(config, {
    ...{ bias, outputBias: bias, queryKeyNorm: 'head', valueNorm: true, scoreScale: 1, keysAreValues },
    headDim: older ? config.sizeOr(GLOBAL_HEAD_DIM, 'global_head_dim') : newer.sizeOr(HEAD_DIM, 'head_dim'),
    keyValueHeads: older && keysAreValues ? config.sizeOr(keyValueHeads, 'num_global_key_value_heads') : keyValueHeads,
    window: global ? 0 : config.sizeOr(512, 'sliding_window'),
    rotary: rotateHalves(global ? 1 : 0),
  });
}
