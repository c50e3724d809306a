import type { ConfigReader } from '../model-config/config-reader.js';
import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import type { NamedPart } from '../model-config/checkpoint-layout.js';
import { forLayers } from '../model-config/layer-kinds.js';
import type { ModelConfig, ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, fusedExpertNames } from '../model-config/tensor-names.js';

/** Granite-MoE: factors of embeddings, residual branches, scores and logits. */
export const graniteMoe: ModelFamily = {
  name: 'granitemoe',
  architectures: ['GraniteMoeForCausalLM'],
  readConfig: (config) => readGranite(config, 0),
};

/** The same with one more network, beside the experts. */
export const graniteMoeShared: ModelFamily = {
  name: 'granitemoeshared',
  architectures: ['GraniteMoeSharedForCausalLM'],
  readConfig: (config) => readGranite(config, config.countOr(0, SHARED_SIZE)),
};

const SHARED_SIZE = 'shared_intermediate_size';

/** `shared`: size of the shared network; 0: there is none. */
function readGranite(config: ConfigReader, shared: number): ModelConfig {
  config.only('norm_topk_prob', [true], true);
  const bias = config.flagOr(false, 'attention_bias');
  const scoreScale = Math.fround(config.positiveOr(1, 'attention_multiplier'));
  const mixer = readAttention(config, { bias, outputBias: bias, scoreScale });
  const glu = readSwiglu(config, ['intermediate_size']);
  const always = shared === 0 ? null : { glu: { ...glu, intermediateSize: shared }, gated: false };
  const layer = layerOf(mixer, { routed: routerOf({ normalize: true }), always });
  const shape = readDecoder(config, {
    embeddingScale: Math.fround(config.numberOr(1, 'embedding_multiplier')),
    residualScale: Math.fround(config.numberOr(1, 'residual_multiplier')),
    logitDivisor: Math.fround(config.positiveOr(1, 'logits_scaling')),
    ropes: [readRope(config, { theta: 10_000, headDim: mixer.headDim })],
    layers: forLayers(config, () => layer),
    expert: glu,
  });
  const names = {
    ...DECODER_NAMES,
    layer: {
      ...DECODER_NAMES.layer,
      router: 'block_sparse_moe.router.layer.weight',
      alwaysGate: sharedRows(shared, shape.hiddenSize, 0),
      alwaysUp: sharedRows(shared, shape.hiddenSize, 1),
      alwaysDown: 'shared_mlp.output_linear.weight',
    },
    expert: fusedExpertNames('block_sparse_moe.input_linear.weight', 'block_sparse_moe.output_linear.weight'),
  };
  return modelConfig(config, shape, names, { eos: 2 });
}

/** Half 0 (gate) or 1 (up) of the rows of the shared network's first matrix. */
function sharedRows(size: number, hiddenSize: number, half: 0 | 1): NamedPart {
  const dimensions = [2 * size, hiddenSize];
  return { name: 'shared_mlp.input_linear.weight', dimensions, slice: { firstRow: half * size, blockRows: size } };
}
