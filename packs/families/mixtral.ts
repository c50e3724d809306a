import type { TensorNames } from '../model-config/checkpoint-layout.js';
import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import { forLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, expertNames, fusedExpertNames, NUMBERED } from '../model-config/tensor-names.js';

const SHIPPED = {
  ...DECODER_NAMES,
  layer: { ...DECODER_NAMES.layer, router: 'block_sparse_moe.gate.weight' },
  expert: expertNames('block_sparse_moe.experts', NUMBERED),
};

/** Tensor names of the form that transformers 5 saves: fused experts. */
function fusedUnder(folder: string): TensorNames {
  return {
    ...DECODER_NAMES,
    layer: { ...DECODER_NAMES.layer, router: `${folder}.gate.weight` },
    expert: fusedExpertNames(`${folder}.experts.gate_up_proj`, `${folder}.experts.down_proj`),
  };
}

/** Mixtral 8x7B and 8x22B. */
export const mixtral: ModelFamily = {
  name: 'mixtral',
  architectures: ['MixtralForCausalLM'],
  readConfig(config) {
    config.only('norm_topk_prob', [true], true);
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const window = config.countOr(0, 'sliding_window');
    const mixer = readAttention(config, { normEpsilon, window }, { keyValueHeads: 8 });
    const layer = layerOf(mixer, { routed: routerOf({ normalize: true }) });
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 1e6, headDim: mixer.headDim })],
      layers: forLayers(config, () => layer),
      expert: readSwiglu(config, ['intermediate_size']),
    });
    return modelConfig(config, shape, [SHIPPED, ...['mlp', 'block_sparse_moe'].map(fusedUnder)], { eos: 2 });
  },
};
