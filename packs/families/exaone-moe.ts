import { readBiasedRouter } from '../model-config/biased-router.js';
import type { ConfigReader } from '../model-config/config-reader.js';
import {
  layerOf,
  modelConfig,
  readAlways,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSwiglu,
} from '../model-config/decoder-config.js';
import { readLayerKinds, readSparseLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** K-EXAONE: layers with a window, which are rotated, and layers without, which are not; DeepSeek-V3's router. */
export const exaoneMoe: ModelFamily = {
  name: 'exaone_moe',
  architectures: ['ExaoneMoEForCausalLM', 'ExaoneMoeForCausalLM'],
  explained: { first_last_k_dense_replace: { why: 'other keys say which layers are dense' } },
  readConfig(config) {
    const bias = config.flagOr(false, 'attention_bias');
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const own = { bias, outputBias: bias, queryKeyNorm: 'head', normEpsilon } as const;
    const everywhere = readAttention(config, own, { keyValueHeads: 32 });
    const window = config.isNull('sliding_window') ? 0 : config.countOr(4096, 'sliding_window');
    const [windowed, full] = [
      { ...everywhere, window },
      { ...everywhere, rotary: window > 0 ? null : everywhere.rotary },
    ];
    const mixers = readWindowed(config, window).map((isWindowed) => (isWindowed ? windowed : full));
    const routed = readBiasedRouter(config, {}, { groups: 1, groupsKept: 1, scale: 2.5 });
    const always = readAlways(config, 'moe_intermediate_size', config.countOr(1, 'num_shared_experts'));
    const dense = readAlways(config, 'intermediate_size');
    const sparse = readSparse(config);
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 10_000, headDim: everywhere.headDim })],
      layers: mixers.map((mixer, layer) =>
        layerOf(mixer, sparse[layer] === true ? { routed, always } : { always: dense }),
      ),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('mlp', 'mlp.shared_experts'),
        choiceBias: 'mlp.e_score_correction_bias',
      },
      leftOut: [/^mtp\./],
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: 53 });
  },
};

/** True for the layers with a window: by the list, else by the pattern, which is a number or a text such as "LLLG". */
function readWindowed(config: ConfigReader, window: number): boolean[] {
  const kinds = ['sliding_attention', 'full_attention'] as const;
  const key = 'sliding_window_pattern';
  if (config.has('layer_types')) config.idle(key);
  const isFull = config.has('layer_types') ? () => false : readPattern(config, key);
  const listed = readLayerKinds(config, kinds, (layer) => (window === 0 || isFull(layer) ? kinds[1] : kinds[0]));
  return listed.map((kind) => kind === 'sliding_attention' && window > 0);
}

function readPattern(config: ConfigReader, key: string): (layer: number) => boolean {
  if (!config.isText(key)) {
    const every = config.countOr(4, key);
    return (layer) => every > 0 && (layer + 1) % every === 0;
  }
  const pattern = config.textOr('LLLG', key);
  if (!/^[LG]+$/.test(pattern)) throw config.unsupported(key, pattern, 'a number, or a text of L and G');
  return (layer) => pattern[layer % pattern.length] === 'G';
}

function readSparse(config: ConfigReader): boolean[] {
  const first = config.countOr(1, 'first_k_dense_replace');
  const listed = config.flagsOr(null, 'is_moe_layer');
  const sparse = readSparseLayers(config, (layer) => listed?.[layer] ?? layer >= first);
  if (listed !== null && listed.length !== sparse.length) {
    throw config.corrupt(`is_moe_layer has ${listed.length} entries, and num_hidden_layers is ${sparse.length}`);
  }
  return sparse;
}
