import { readBiasedRouter } from '../model-config/biased-router.js';
import type { ConfigReader } from '../model-config/config-reader.js';
import {
  layerOf,
  modelConfig,
  readAlways,
  readAttention,
  readDecoder,
  readSwiglu,
} from '../model-config/decoder-config.js';
import { readLayerKinds, readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** dots.llm1: query and key norms of each head, DeepSeek-V3's router, shared experts in one network. */
export const dots1: ModelFamily = {
  name: 'dots1',
  architectures: ['Dots1ForCausalLM'],
  explained: { use_sliding_window: { why: 'sliding_window and max_window_layers say which layers have a window' } },
  readConfig(config) {
    const bias = config.flagOr(false, 'attention_bias');
    const mixer = readAttention(config, { bias, outputBias: bias, queryKeyNorm: 'head' }, { keyValueHeads: 32 });
    const routed = readBiasedRouter(
      config,
      {},
      // Files name the method of choice where others name the function, which is a sigmoid.
      { groups: 1, groupsKept: 1, scale: 1, scores: ['sigmoid', 'noaux_tc'], normalize: false },
    );
    const always = readAlways(config, 'moe_intermediate_size', config.countOr(0, 'n_shared_experts'));
    const dense = readAlways(config, 'intermediate_size');
    const windows = readWindows(config);
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 10_000, headDim: mixer.headDim })],
      layers: readSparseBehindDense(config).map((sparse, layer) =>
        layerOf({ ...mixer, window: windows[layer] ?? 0 }, sparse ? { routed, always } : { always: dense }),
      ),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, ...alwaysNames('mlp', 'mlp.shared_experts') },
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: null });
  },
};

/** The window of each layer; 0: none. The first max_window_layers layers have none. */
function readWindows(config: ConfigReader): number[] {
  const window = config.isNull('sliding_window') ? 0 : config.countOr(4096, 'sliding_window');
  const unwindowed = config.countOr(62, 'max_window_layers');
  const kinds = ['full_attention', 'sliding_attention'] as const;
  return readLayerKinds(config, kinds, (layer) => (window > 0 && layer >= unwindowed ? kinds[1] : kinds[0])).map(
    (kind) => (kind === 'sliding_attention' ? window : 0),
  );
}
