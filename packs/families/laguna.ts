import type { ConfigReader } from '../model-config/config-reader.js';
import {
  layerOf,
  modelConfig,
  readAlways,
  readAttention,
  readDecoder,
  readSwiglu,
  rotateHalves,
  routerOf,
} from '../model-config/decoder-config.js';
import {
  forLayers,
  listOfLayers,
  readLayerKinds,
  readLayerNumbers,
  readSparseLayers,
} from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { type ReadRope, readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

const KINDS = ['full_attention', 'sliding_attention'] as const;
type Kind = (typeof KINDS)[number];

/** The ropes if config.json has none (transformers' configuration_laguna.py). */
const ROPES: Readonly<Record<Kind, Readonly<Record<string, unknown>>>> = {
  full_attention: { rope_theta: 500_000, partial_rotary_factor: 0.5 },
  sliding_attention: { rope_theta: 10_000, partial_rotary_factor: 1 },
};

/** Laguna: heads and ropes by layer, attention gated by softplus, a sigmoid router whose logits may have a cap. */
export const laguna: ModelFamily = {
  name: 'laguna',
  architectures: ['LagunaForCausalLM'],
  explained: {
    norm_topk_prob: { why: 'the weights of the chosen experts always sum to 1', only: [true] },
    moe_router_use_sigmoid: { why: 'the router always has sigmoids', only: [true] },
    swa_attention_sink_enabled: { why: 'this value switches off what is not computed here', only: [false] },
  },
  readConfig(config) {
    config.only('moe_apply_router_weight_on_input', [false], false);
    const kinds = readLayerKinds(config, KINDS, () => 'full_attention');
    const base = readAttention(
      config,
      {
        queryKeyNorm: 'head',
        outputGate: true,
        outputGateFunction: 'softplus',
        outputGateWidth: readGateWidth(config),
      },
      { keyValueHeads: 8, headDim: 128 },
    );
    const heads = readHeads(config, base.heads);
    const ropes = readRopes(config, new Set(kinds), base.headDim);
    const window = readWindow(config, kinds);
    const routed = routerOf({
      score: 'sigmoid',
      choiceBias: true,
      normalize: true,
      scale: Math.fround(config.positiveOr(1, 'moe_routed_scaling_factor')),
      logitCap: Math.fround(Math.max(0, config.numberOr(0, 'moe_router_logit_softcapping'))),
    });
    const sparse = readSparse(config);
    const always = readAlways(config, 'shared_expert_intermediate_size');
    const dense = sparse.includes(false) ? readAlways(config, 'intermediate_size') : null;
    const used = KINDS.filter((kind) => ropes.has(kind));
    const layers = kinds.map((kind, layer) => {
      const own = { heads: heads[layer] ?? base.heads, rotary: rotateHalves(used.indexOf(kind)) };
      const mixer = { ...base, ...own, window: kind === 'sliding_attention' ? window : 0 };
      return layerOf(mixer, sparse[layer] === true ? { routed, always } : { always: dense });
    });
    const shape = readDecoder(config, {
      ropes: [...ropes.values()],
      layers,
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        ...alwaysNames('mlp', 'mlp.shared_expert'),
        outputGate: 'self_attn.g_proj.weight',
        choiceBias: 'mlp.experts.e_score_correction_bias',
      },
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: null });
  },
};

/** Published files have the gate's kind by layer, too, which must be the same in all. */
function readGateWidth(config: ConfigReader): 'head' | 'element' {
  config.notNull('gating');
  const width = config.only('gating', [true, 'per-head', 'per-element'], true) === 'per-element' ? 'element' : 'head';
  const key = 'gating_types';
  const other = listOfLayers(config, key, config.textsOr(null, key))?.find((type) => type !== `per-${width}`);
  if (other !== undefined) throw config.unsupported(key, other, `per-${width}, as gating says, in all layers`);
  return width;
}

/** True for each layer with experts. Published files name the dense layers; without a word the first layer is dense. */
function readSparse(config: ConfigReader): boolean[] {
  const key = 'mlp_only_layers';
  const dense = config.has(key) ? readLayerNumbers(config, key) : new Set([0]);
  return readSparseLayers(config, (layer) => !dense.has(layer), [key]);
}

/** 0: no layer has a window. */
function readWindow(config: ConfigReader, kinds: readonly Kind[]): number {
  if (!kinds.includes('sliding_attention')) {
    config.idle('sliding_window');
    return 0;
  }
  config.notNull('sliding_window');
  return config.sizeOr(512, 'sliding_window');
}

/** Heads of each layer; the number of key-value heads is that of the model. */
function readHeads(config: ConfigReader, usual: number): readonly number[] {
  const key = 'num_attention_heads_per_layer';
  const heads = listOfLayers(config, key, config.numbersOr(null, key)) ?? forLayers(config, () => usual);
  const wrong = heads.find((count) => !Number.isInteger(count) || count < 1);
  if (wrong !== undefined) throw config.corrupt(`${key} has ${wrong}, expected whole numbers of at least 1`);
  return heads;
}

/**
 * The ropes of the kinds of layers that the model has, in the order of KINDS. A rope that no layer has is read, and left out. As in transformers,
 * a share beside rope_parameters is only for kinds that have none, and parameters that stand there without kinds are those of every kind.
 */
function readRopes(config: ConfigReader, kinds: ReadonlySet<Kind>, headDim: number): ReadonlyMap<Kind, ReadRope> {
  const ropes = new Map<Kind, ReadRope>();
  const given = config.within('rope_parameters');
  const flat = given !== null && !KINDS.some((kind) => given.has(kind));
  const own = config.picked('rope_parameters', 'max_position_embeddings', 'original_max_position_embeddings');
  const [theta, share] = (['rope_theta', 'partial_rotary_factor'] as const).map((key) => config.positiveOr(null, key));
  for (const kind of KINDS) {
    if (given !== null && !flat && !given.has(kind) && !kinds.has(kind)) continue;
    const defaults = { theta: theta ?? null, headDim, partialFactor: share ?? 1, parameters: ROPES[kind] };
    const rope = readRope(own, defaults, flat ? null : kind);
    if (kinds.has(kind)) ropes.set(kind, rope);
  }
  return ropes;
}
