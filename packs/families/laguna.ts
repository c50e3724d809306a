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
import { forLayers, listOfLayers, readLayerKinds, readSparseLayers } from '../model-config/layer-kinds.js';
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
    const sparse = readSparseLayers(config, (layer) => layer >= 1);
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

function readGateWidth(config: ConfigReader): 'head' | 'element' {
  config.notNull('gating');
  return config.only('gating', [true, 'per-head', 'per-element'], true) === 'per-element' ? 'element' : 'head';
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

/** The ropes of the kinds of layers that the model has, in the order of KINDS. A rope that no layer has is read, and left out. */
function readRopes(config: ConfigReader, kinds: ReadonlySet<Kind>, headDim: number): ReadonlyMap<Kind, ReadRope> {
  const ropes = new Map<Kind, ReadRope>();
  const given = config.within('rope_parameters');
  for (const kind of KINDS) {
    if (given !== null && !given.has(kind) && !kinds.has(kind)) continue;
    const rope = readRope(config, { theta: null, headDim, parameters: ROPES[kind] }, kind);
    if (kinds.has(kind)) ropes.set(kind, rope);
  }
  return ropes;
}
