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
import { readLayerKinds, readSparseSteps } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** Qwen1.5-MoE and Qwen2-MoE: a shared expert with a gate beside the others. */
export const qwen2Moe: ModelFamily = {
  name: 'qwen2_moe',
  architectures: ['Qwen2MoeForCausalLM'],
  readConfig(config) {
    const mixer = readAttention(config, { bias: config.flagOr(true, 'qkv_bias') }, { keyValueHeads: 16 });
    const windows = readWindows(config);
    const routed = routerOf({ normalize: config.flagOr(false, 'norm_topk_prob') });
    const layers = readSparseSteps(config).map((sparse, layer) =>
      layerOf(
        { ...mixer, window: windows[layer] ?? 0 },
        sparse
          ? { routed, always: { glu: readSwiglu(config, ['shared_expert_intermediate_size']), gated: true } }
          : { always: readAlways(config, 'intermediate_size') },
      ),
    );
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 10_000, headDim: mixer.headDim })],
      layers,
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('mlp', 'mlp.shared_expert'),
        alwaysWeight: 'mlp.shared_expert_gate.weight',
      },
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: null });
  },
};

/** Window of each layer. If windows are used, every second one of the first `max_window_layers` layers has one. */
function readWindows(config: ConfigReader): number[] {
  const used = config.flagOr(false, 'use_sliding_window');
  const last = config.countOr(28, 'max_window_layers');
  const kinds = readLayerKinds(config, ['sliding_attention', 'full_attention'], (layer) =>
    used && layer % 2 === 0 && layer < last ? 'sliding_attention' : 'full_attention',
  );
  const windowed = kinds.includes('sliding_attention');
  if (windowed && !used) throw config.unsupported('use_sliding_window', false, 'true where layer_types has windows');
  if (windowed) config.notNull('sliding_window');
  const window = used ? config.countOr(4096, 'sliding_window') : 0;
  return kinds.map((kind) => (kind === 'sliding_attention' ? window : 0));
}
