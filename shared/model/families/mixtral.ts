import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSwiglu,
  routerOf,
} from '../decoder-config.js';
import { forLayers } from '../layer-kinds.js';
import type { ModelFamily } from '../model-family.js';
import { readRope } from '../rope-config.js';
import { DECODER_NAMES, expertNames, NUMBERED } from '../tensor-names.js';

/** Mixtral 8x7B and 8x22B. */
export const mixtral: ModelFamily = {
  name: 'mixtral',
  architectures: ['MixtralForCausalLM'],
  readConfig(config) {
    const mixer = readAttention(config, { window: config.countOr(0, 'sliding_window') });
    const layer = layerOf(mixer, { routed: routerOf({ normalize: true }) });
    const shape = readDecoder(config, {
      normEpsilon: readNormEpsilon(config, 1e-5),
      ropes: [readRope(config, { theta: 1e6, headDim: mixer.headDim })],
      layers: forLayers(config, () => layer),
      expert: readSwiglu(config, ['intermediate_size']),
    });
    return modelConfig(config, shape, {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, router: 'block_sparse_moe.gate.weight' },
      expert: expertNames('block_sparse_moe.experts', NUMBERED),
    });
  },
};
