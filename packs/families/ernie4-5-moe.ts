import {
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSharedOrDense,
  readSwiglu,
  rotateNeighbours,
  routerOf,
} from '../model-config/decoder-config.js';
import { forLayers, readSparseLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** ERNIE-4.5-MoE: softmax router with a bias for the choice, dense layers at both ends, rotation of neighbouring dimensions. */
export const ernie45Moe: ModelFamily = {
  name: 'ernie4_5_moe',
  architectures: ['Ernie4_5_MoeForCausalLM'],
  readConfig(config) {
    config.only('use_bias', [false], false);
    config.only('norm_topk_prob', [true], true);
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const mixer = readAttention(config, { normEpsilon, rotary: rotateNeighbours(0) }, { keyValueHeads: 4 });
    const sumFloor = Math.fround(config.positiveOr(1e-12, 'moe_norm_min'));
    const routed = routerOf({ choiceBias: true, normalize: true, sumFloor });
    const first = config.countOr(1, 'moe_layer_start_index');
    const end = config.numberOr(-1, 'moe_layer_end_index');
    const last = end === -1 ? forLayers(config, (layer) => layer).length - 1 : end;
    const interval = config.sizeOr(1, 'moe_layer_interval');
    const keys = ['moe_layer_start_index', 'moe_layer_end_index', 'moe_layer_interval'];
    const inside = (layer: number): boolean => layer >= first && layer <= last;
    const sparse = readSparseLayers(config, (layer) => inside(layer) && (layer + 1) % interval === 0, keys);
    const shared = config.countOr(2, 'moe_num_shared_experts');
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 500_000, headDim: mixer.headDim })],
      layers: readSharedOrDense(config, sparse, { mixer, routed, shared }),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('mlp', 'mlp.shared_experts'),
        choiceBias: { name: 'mlp.moe_statics.e_score_correction_bias', dimensions: [1, shape.experts] },
      },
      leftOut: [/^model\.mtp_/],
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { tied: true, eos: 2 });
  },
};
