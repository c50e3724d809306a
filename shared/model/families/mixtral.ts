import type { ModelFamily } from '../model-family.js';
import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readLayers,
  readNormEpsilon,
  routerOf,
  swiglu,
} from '../decoder-config.js';
import { readRope } from '../rope-config.js';
import { DECODER_NAMES, expertsOf } from '../tensor-names.js';

/** Mixtral 8x7B and 8x22B. */
export const mixtral: ModelFamily = {
  name: 'mixtral',
  architectures: ['MixtralForCausalLM'],
  readConfig(config) {
    config.only('hidden_act', ['silu'], 'silu');
    const epsilon = readNormEpsilon(config, 1e-5);
    const window = config.countOr(0, 'sliding_window');
    const mixer = readAttention(config, { window, normEpsilon: epsilon });
    const { rope, maxPositions } = readRope(config, { theta: 1e6, headDim: mixer.headDim });
    const layer = layerOf(mixer, { routed: routerOf({ normalize: true }) });
    const shape = readDecoder(config, {
      maxPositions,
      normEpsilon: epsilon,
      ropes: [rope],
      layers: readLayers(config).map(() => layer),
      experts: config.size('num_local_experts', 'num_experts'),
      expertsPerToken: config.size('num_experts_per_tok'),
      expert: swiglu(config.size('intermediate_size')),
    });
    return modelConfig(config, shape, {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, router: 'block_sparse_moe.gate.weight' },
      expert: expertsOf('block_sparse_moe.experts', { gate: 'w1', up: 'w3', down: 'w2' }),
    });
  },
};
