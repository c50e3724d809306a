import { readBiasedRouter } from '../model-config/biased-router.js';
import type { LayerTensor, NamedLayer, NamedPart, TensorNames } from '../model-config/checkpoint-layout.js';
import type { ConfigReader } from '../model-config/config-reader.js';
import { layerOf, modelConfig, readAttention, readDecoder, withoutExperts } from '../model-config/decoder-config.js';
import { MOST_LAYERS } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { STATE_SPACE_KEYS, stateSpaceNames } from '../model-config/state-space.js';
import { readTaps } from '../model-config/taps.js';
import type { ExpertMatrix } from '../../shared/model/tensor-source.js';
import {
  type AttentionMixer,
  expertRowSize,
  type GluShape,
  gateRows,
  type LayerShape,
  type RouterShape,
  type StateSpaceMixer,
} from '../../shared/model/model-shape.js';

const UNLIMITED = 'steps are not limited';
const UNUSED = 'it changes no answer of a trained model';
const GUESSING = 'it is of layers that only guess tokens ahead, which are left out';

/** Nemotron-H: Mamba-2, attention without rotation, experts without a gate. One of its layers is one norm and a mixer or a network. */
export const nemotronH: ModelFamily = {
  name: 'nemotron_h',
  architectures: ['NemotronHForCausalLM'],
  explained: {
    ...STATE_SPACE_KEYS,
    chunk_size: { why: UNUSED },
    expand: { why: 'sizes of heads and their number say the inner size' },
    num_logits_to_keep: { why: UNUSED },
    residual_in_fp32: { why: UNUSED },
    time_step_min: { why: UNLIMITED },
    time_step_max: { why: UNLIMITED },
    time_step_floor: { why: UNLIMITED },
    use_mamba_kernels: { why: UNUSED },
    mamba_ssm_cache_dtype: { why: 'states are FP32' },
    moe_shared_expert_overlap: { why: UNUSED },
    n_shared_experts: { why: 'moe_shared_expert_intermediate_size is the size of the one network', only: [1] },
    keep_mtp_spec_in_bf16: { why: GUESSING },
    mtp_layers_block_type: { why: GUESSING },
    mtp_hybrid_override_pattern: { why: GUESSING },
  },
  readConfig(config) {
    const expertHiddenSize = config.sizeOr(null, 'moe_latent_size');
    const kinds = readKinds(config);
    if (!kinds.includes('moe')) throw withoutExperts(config);
    const places = pairsOf(config, kinds);
    const parts = readParts(config);
    const shape = readDecoder(config, {
      normEpsilon: parts.attention.normEpsilon,
      ropes: [],
      layers: places.map((place) => layerShape(place, parts)),
      expert: parts.expert,
      ...(expertHiddenSize === null ? {} : { expertHiddenSize }),
    });
    return modelConfig(config, shape, namesOf(parts, shape.hiddenSize, places), { eos: 2 });
  },
};

type Kind = 'mamba' | 'attention' | 'moe' | 'mlp';
const LETTERS: Readonly<Record<string, Kind>> = { M: 'mamba', '*': 'attention', E: 'moe', '-': 'mlp' };
const WORDS: Readonly<Record<string, Kind>> = {
  mamba: 'mamba',
  linear_attention: 'mamba',
  attention: 'attention',
  full_attention: 'attention',
  moe: 'moe',
  mlp: 'mlp',
};

/** The kind of each layer of the checkpoint. */
function readKinds(config: ConfigReader): Kind[] {
  const pattern = config.textOr(null, 'hybrid_override_pattern');
  const words = config.textsOr(null, 'layers_block_type');
  const byPattern = pattern === null ? null : kindsOf(config, 'hybrid_override_pattern', pattern, LETTERS);
  const byWords = words === null ? null : kindsOf(config, 'layers_block_type', words, WORDS);
  const kinds = byWords ?? byPattern ?? (['mamba', 'moe', 'attention', 'mlp'] as const);
  if (byPattern !== null && byPattern.join() !== kinds.join()) {
    throw config.corrupt('hybrid_override_pattern and layers_block_type say different layers');
  }
  const layers = config.sizeOr(kinds.length, 'num_hidden_layers');
  if (layers !== kinds.length) {
    const list = byWords === null ? 'hybrid_override_pattern' : 'layers_block_type';
    throw config.corrupt(`${list} says ${kinds.length} layers, and num_hidden_layers is ${layers}`);
  }
  return [...kinds];
}

function kindsOf(
  config: ConfigReader,
  key: string,
  said: string | readonly string[],
  known: Readonly<Record<string, Kind>>,
): Kind[] {
  if (said.length > MOST_LAYERS)
    throw config.corrupt(`${key} has ${said.length} layers, expected at most ${MOST_LAYERS}`);
  return Array.from(said, (one) => {
    const kind = Object.hasOwn(known, one) ? known[one] : undefined;
    if (kind === undefined) throw config.unsupported(key, one, Object.keys(known).join(' or '));
    return kind;
  });
}

/** A layer of the model: a mixer, and the network behind it. Numbers are those of the checkpoint's layers. */
interface Place {
  mixer: number;
  mixes: 'mamba' | 'attention';
  feedForward: number | null;
  network: 'moe' | 'mlp' | null;
}

function pairsOf(config: ConfigReader, kinds: readonly Kind[]): Place[] {
  const places: Place[] = [];
  for (const [number, kind] of kinds.entries()) {
    if (kind === 'mamba' || kind === 'attention') {
      places.push({ mixer: number, mixes: kind, feedForward: null, network: null });
      continue;
    }
    const last = places.at(-1);
    if (last?.feedForward !== null) {
      const key = config.has('layers_block_type') ? 'layers_block_type' : 'hybrid_override_pattern';
      throw config.unsupported(key, `${kind} in layer ${number}`, 'experts and networks right behind a mixer');
    }
    last.feedForward = number;
    last.network = kind;
  }
  return places;
}

interface Parts {
  stateSpace: StateSpaceMixer;
  attention: AttentionMixer;
  routed: RouterShape;
  expert: GluShape;
  shared: GluShape;
  dense: GluShape;
}

function readParts(config: ConfigReader): Parts {
  config.only('mlp_hidden_act', ['relu2'], 'relu2');
  config.only('mamba_hidden_act', ['silu', 'swish'], 'silu');
  for (const key of ['use_bias', 'mlp_bias', 'mamba_proj_bias']) config.only(key, [false], false);
  const normEpsilon = Math.fround(config.positiveOr(1e-5, 'layer_norm_epsilon', 'norm_eps'));
  // Attention is not rotated.
  config.idle('rope_theta', 'rope_scaling', 'rope_parameters', 'partial_rotary_factor');
  const bias = config.flagOr(false, 'attention_bias');
  const own = { bias, outputBias: bias, normEpsilon, rotary: null };
  const network = (usual: number, key: string): GluShape => {
    const intermediateSize = config.sizeOr(usual, key);
    // The rows of up stand in two matrices.
    if (intermediateSize % 2 !== 0) throw config.unsupported(key, intermediateSize, 'an even number');
    return { intermediateSize, activation: 'relu-squared', alpha: 1, limit: 0, upOffset: 0, bias: false };
  };
  return {
    stateSpace: readStateSpace(config, normEpsilon),
    attention: readAttention(config, own, { keyValueHeads: 8, headDim: 128 }),
    routed: readBiasedRouter(config),
    expert: network(7688, 'moe_intermediate_size'),
    shared: network(7688, 'moe_shared_expert_intermediate_size'),
    dense: network(21_504, 'intermediate_size'),
  };
}

function readStateSpace(config: ConfigReader, normEpsilon: number): StateSpaceMixer {
  const heads = config.sizeOr(128, 'mamba_num_heads');
  const groups = config.sizeOr(8, 'n_groups');
  if (heads % groups !== 0) throw config.corrupt(`mamba_num_heads ${heads} is not a multiple of n_groups ${groups}`);
  return {
    kind: 'state-space',
    heads,
    groups,
    headDim: config.sizeOr(64, 'mamba_head_dim'),
    stateSize: config.sizeOr(128, 'ssm_state_size'),
    taps: readTaps(config, 4, 'conv_kernel'),
    convolutionBias: config.flagOr(true, 'use_conv_bias'),
    normGroups: groups,
    normEpsilon,
  };
}

function layerShape({ mixes, network }: Place, { stateSpace, attention, routed, shared, dense }: Parts): LayerShape {
  const mixer = mixes === 'mamba' ? stateSpace : attention;
  if (network === 'moe') return layerOf(mixer, { routed, always: { glu: shared, gated: false } });
  return layerOf(mixer, network === 'mlp' ? { always: { glu: dense, gated: false } } : {});
}

function namesOf({ stateSpace }: Parts, hiddenSize: number, places: readonly Place[]): TensorNames {
  const ofAlways =
    (half: 0 | 1): LayerTensor =>
    ({ layer }: NamedLayer) => {
      const glu = layer.always?.glu;
      return upRows(`${alwaysFolder(layer)}.up_proj.weight`, half, glu === undefined ? 0 : gateRows(glu), hiddenSize);
    };
  return {
    prefix: 'backbone.',
    model: { embedding: 'embeddings.weight', finalNorm: 'norm_f.weight', lmHead: 'lm_head.weight' },
    numbers: places.map(({ mixer, feedForward }) => ({ mixer, feedForward: feedForward ?? mixer })),
    layer: {
      ...stateSpaceNames('mixer', stateSpace, hiddenSize),
      mixerNorm: 'norm.weight',
      feedForwardNorm: 'norm.weight',
      query: 'mixer.q_proj.weight',
      queryBias: 'mixer.q_proj.bias',
      key: 'mixer.k_proj.weight',
      keyBias: 'mixer.k_proj.bias',
      value: 'mixer.v_proj.weight',
      valueBias: 'mixer.v_proj.bias',
      mixerOutput: ({ layer }) => `mixer.${layer.mixer.kind === 'attention' ? 'o_proj' : 'out_proj'}.weight`,
      mixerOutputBias: 'mixer.o_proj.bias',
      expertInput: 'mixer.fc1_latent_proj.weight',
      expertOutput: 'mixer.fc2_latent_proj.weight',
      router: 'mixer.gate.weight',
      choiceBias: 'mixer.gate.e_score_correction_bias',
      alwaysGate: ofAlways(0),
      alwaysUp: ofAlways(1),
      alwaysDown: ({ layer }) => `${alwaysFolder(layer)}.down_proj.weight`,
    },
    expert: (part: ExpertMatrix, expert, { shape }) => {
      const folder = `mixer.experts.${expert}`;
      if (part === 'down') return `${folder}.down_proj.weight`;
      return upRows(`${folder}.up_proj.weight`, part === 'gate' ? 0 : 1, gateRows(shape.expert), expertRowSize(shape));
    },
    leftOut: [/^mtp\./],
  };
}

function alwaysFolder({ routed }: LayerShape): string {
  return routed === null ? 'mixer' : 'mixer.shared_experts';
}

/** Half 0 or 1 of the rows of an up matrix. */
function upRows(name: string, half: 0 | 1, rows: number, hiddenSize: number): NamedPart {
  return { name, dimensions: [2 * rows, hiddenSize], slice: { firstRow: half * rows, blockRows: rows } };
}
