import type { ConfigReader } from '../model-config/config-reader.js';
import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSwiglu,
  routerOf,
  withoutExperts,
} from '../model-config/decoder-config.js';
import type { NamedLayer, NamedPart, TensorNames } from '../model-config/checkpoint-layout.js';
import { forLayers, readLayerKinds } from '../model-config/layer-kinds.js';
import type { ModelConfig, ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { STATE_SPACE_KEYS, stateSpaceNames } from '../model-config/state-space.js';
import { DECODER_NAMES, fusedExpertNames } from '../model-config/tensor-names.js';
import { readTaps } from '../model-config/taps.js';
import type { LayerShape, MixerShape, StateSpaceMixer } from '../../shared/model/model-shape.js';

/** Granite-MoE: factors of embeddings, residual branches, scores and logits. */
export const graniteMoe: ModelFamily = {
  name: 'granitemoe',
  architectures: ['GraniteMoeForCausalLM'],
  readConfig: (config) => readGranite(config, { shared: 0 }),
};

/** The same with one more network, beside the experts. */
export const graniteMoeShared: ModelFamily = {
  name: 'granitemoeshared',
  architectures: ['GraniteMoeSharedForCausalLM'],
  readConfig: (config) => readGranite(config, { shared: config.countOr(0, SHARED_SIZE) }),
};

/** Granite-4: most layers have a Mamba-2 mixer in place of attention. */
export const graniteMoeHybrid: ModelFamily = {
  name: 'granitemoehybrid',
  architectures: ['GraniteMoeHybridForCausalLM'],
  explained: {
    ...STATE_SPACE_KEYS,
    normalization_function: { why: 'it is what is computed', only: ['rmsnorm'] },
  },
  readConfig(config) {
    if (config.countOr(8, 'num_local_experts') === 0) throw withoutExperts(config);
    return readGranite(config, { shared: config.countOr(1024, SHARED_SIZE), hybrid: readHybrid(config) });
  },
};

const SHARED_SIZE = 'shared_intermediate_size';

interface GraniteParts {
  /** Size of the shared network; 0: there is none. */
  shared: number;
  /** Absent: every layer has attention, which is rotated. */
  hybrid?: Hybrid;
}

interface Hybrid {
  stateSpace: StateSpaceMixer;
  /** True for each layer with attention. */
  attentionLayers: boolean[];
  rotated: boolean;
}

function readHybrid(config: ConfigReader): Hybrid {
  config.only('mamba_proj_bias', [false], false);
  config.only('position_embedding_type', ['nope', 'rope'], 'nope');
  const rotated = config.textOr('nope', 'position_embedding_type') === 'rope';
  const kinds = readLayerKinds(config, ['linear_attention', 'full_attention'], () => 'linear_attention');
  return {
    stateSpace: readStateSpace(config),
    attentionLayers: kinds.map((kind) => kind === 'full_attention'),
    rotated,
  };
}

function readStateSpace(config: ConfigReader): StateSpaceMixer {
  const inner = config.sizeOr(2, 'mamba_expand') * config.size('hidden_size');
  const heads = config.sizeOr(128, 'mamba_n_heads');
  const groups = config.sizeOr(1, 'mamba_n_groups');
  if (inner % heads !== 0) {
    throw config.corrupt(`mamba_expand times hidden_size is ${inner}, no multiple of mamba_n_heads ${heads}`);
  }
  if (heads % groups !== 0)
    throw config.corrupt(`mamba_n_heads ${heads} is not a multiple of mamba_n_groups ${groups}`);
  const headDim = inner / heads;
  const key = 'mamba_d_head';
  if (config.isText(key)) config.only(key, ['auto'], 'auto');
  else if (config.sizeOr(headDim, key) !== headDim) {
    throw config.corrupt(`${key} times mamba_n_heads ${heads} is not mamba_expand times hidden_size, ${inner}`);
  }
  return {
    kind: 'state-space',
    heads,
    groups,
    headDim,
    stateSize: config.sizeOr(256, 'mamba_d_state'),
    taps: readTaps(config, 4, 'mamba_d_conv'),
    convolutionBias: config.flagOr(true, 'mamba_conv_bias'),
    normGroups: 1,
    normEpsilon: readNormEpsilon(config),
  };
}

function readGranite(config: ConfigReader, { shared, hybrid }: GraniteParts): ModelConfig {
  config.only('norm_topk_prob', [true], true);
  const bias = config.flagOr(false, 'attention_bias');
  const scoreScale = Math.fround(config.positiveOr(1, 'attention_multiplier'));
  const rotated = hybrid?.rotated ?? true;
  const mixer = readAttention(config, { bias, outputBias: bias, scoreScale, ...(rotated ? {} : { rotary: null }) });
  if (!rotated) config.idle('rope_theta', 'rope_scaling', 'rope_parameters');
  const glu = readSwiglu(config, ['intermediate_size']);
  const always = shared === 0 ? null : { glu: { ...glu, intermediateSize: shared }, gated: false };
  const layerWith = (one: MixerShape): LayerShape => layerOf(one, { routed: routerOf({ normalize: true }), always });
  const shape = readDecoder(config, {
    embeddingScale: Math.fround(config.numberOr(1, 'embedding_multiplier')),
    residualScale: Math.fround(config.numberOr(1, 'residual_multiplier')),
    logitDivisor: Math.fround(config.positiveOr(1, 'logits_scaling')),
    ropes: rotated ? [readRope(config, { theta: 10_000, headDim: mixer.headDim })] : [],
    layers: forLayers(config, (layer) =>
      layerWith(hybrid === undefined || hybrid.attentionLayers[layer] === true ? mixer : hybrid.stateSpace),
    ),
    expert: glu,
  });
  const names = {
    ...DECODER_NAMES,
    layer: {
      ...DECODER_NAMES.layer,
      ...(hybrid === undefined ? {} : hybridNames(hybrid.stateSpace, shape.hiddenSize)),
      router: 'block_sparse_moe.router.layer.weight',
      alwaysGate: sharedRows(shared, shape.hiddenSize, 0),
      alwaysUp: sharedRows(shared, shape.hiddenSize, 1),
      alwaysDown: 'shared_mlp.output_linear.weight',
    },
    expert: fusedExpertNames('block_sparse_moe.input_linear.weight', 'block_sparse_moe.output_linear.weight'),
  };
  return modelConfig(config, shape, names, { eos: 2 });
}

function hybridNames(stateSpace: StateSpaceMixer, hiddenSize: number): TensorNames['layer'] {
  return {
    ...stateSpaceNames('mamba', stateSpace, hiddenSize),
    mixerOutput: ({ layer }: NamedLayer): string =>
      layer.mixer.kind === 'attention' ? 'self_attn.o_proj.weight' : 'mamba.out_proj.weight',
  };
}

/** Half 0 (gate) or 1 (up) of the rows of the shared network's first matrix. */
function sharedRows(size: number, hiddenSize: number, half: 0 | 1): NamedPart {
  const dimensions = [2 * size, hiddenSize];
  return { name: 'shared_mlp.input_linear.weight', dimensions, slice: { firstRow: half * size, blockRows: size } };
}
