import type { ConfigReader } from '../model-config/config-reader.js';
import {
  layerOf,
  modelConfig,
  readAlways,
  readAttention,
  readDecoder,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import { readSparseSteps } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** Refuses windows on some layers only. In this family every layer has the window; related models have it in their first or last layers only. */
function refuseFewWindows(config: ConfigReader): void {
  const layers = config.size('num_hidden_layers');
  const windows = config.countOr(layers, 'max_window_layers');
  if (windows < layers) throw config.unsupported('max_window_layers', windows, `num_hidden_layers, which is ${layers}`);
}

/** Qwen3-MoE: query and key norms, experts in one of every few layers. */
export const qwen3Moe: ModelFamily = {
  name: 'qwen3_moe',
  architectures: ['Qwen3MoeForCausalLM'],
  explained: { use_qk_norm: { why: 'it is what is computed', only: [true] } },
  readConfig(config) {
    const bias = config.flagOr(false, 'attention_bias');
    const windowed = config.flagOr(false, 'use_sliding_window') && !config.isNull('sliding_window');
    if (windowed) refuseFewWindows(config);
    const window = windowed ? config.countOr(4096, 'sliding_window') : 0;
    const own = { bias, outputBias: bias, queryKeyNorm: 'head', window } as const;
    const mixer = readAttention(config, own, { keyValueHeads: 4 });
    const routed = routerOf({ normalize: config.flagOr(false, 'norm_topk_prob') });
    const layers = readSparseSteps(config).map((sparse) =>
      layerOf(mixer, sparse ? { routed } : { always: readAlways(config, 'intermediate_size') }),
    );
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 10_000, headDim: mixer.headDim })],
      layers,
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    return modelConfig(config, shape, expertForms(DECODER_NAMES, 'mlp.experts'), { eos: null });
  },
};
