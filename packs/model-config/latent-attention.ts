import type { TensorNames } from './checkpoint-layout.js';
import type { ConfigReader } from './config-reader.js';
import { inverseRoot, rotateHalves, rotateNeighbours } from './decoder-config.js';
import type { LatentMixer } from '../../shared/model/model-shape.js';
import { type ReadRope, readRope } from './rope-config.js';
import { everyRows } from './tensor-names.js';

interface LatentRope {
  theta?: number;
  ofHeads?: boolean;
  /** The rope's parameters if config.json has none. */
  parameters?: Readonly<Record<string, unknown>>;
}

/** Epsilon of the latents' norms, independent of the model's other norms. */
const LATENT_NORM_EPSILON = Math.fround(1e-6);

/**
 * Reads latent attention in DeepSeek's form, and its rope. `queryRank`: used if config.json has none; null in config.json means full queries.
 * `ofHeads`: the rope's share counts in whole heads of queries, not in their rotated parts.
 */
export function readLatentAttention(
  config: ConfigReader,
  queryRank: number,
  { theta = 10_000, ofHeads = false, parameters = {} }: LatentRope = {},
): { mixer: LatentMixer; rope: ReadRope } {
  const plain = readPlainLatentAttention(config, queryRank);
  const { nopeSize, ropeSize } = plain;
  const headDim = ofHeads ? nopeSize + ropeSize : ropeSize;
  const rotary = ofHeads ? { rotaryDim: ropeSize, rotaryKey: 'qk_rope_head_dim' } : {};
  const rope = readRope(config, { theta, headDim, parameters, ...rotary });
  const dimensions = 2 * rope.rope.frequencies.length;
  if (dimensions !== ropeSize) {
    throw config.corrupt(`a rope of ${dimensions} dimensions is not qk_rope_head_dim ${ropeSize}`);
  }
  const scoreScale = Math.fround(plain.scoreScale * rope.mscaleAllDim * rope.mscaleAllDim);
  const rotated = config.flagOr(true, 'rope_interleave') ? rotateNeighbours(0) : rotateHalves(0);
  return { mixer: { ...plain, scoreScale, rotary: rotated }, rope };
}

/** Reads latent attention without rotation. `queryRank`: as above. `ropeSize`: of the part of a key that all heads share. */
export function readPlainLatentAttention(
  config: ConfigReader,
  queryRank: number,
  ropeSize = config.size('qk_rope_head_dim'),
): LatentMixer {
  config.only('attention_bias', [false], false);
  const nopeSize = config.size('qk_nope_head_dim');
  config.repeats('qk_head_dim', nopeSize + ropeSize);
  // All heads share one latent, whose sizes are those above.
  config.idle('head_dim', 'num_key_value_heads');
  return {
    kind: 'latent',
    heads: config.size('num_attention_heads'),
    queryRank: config.countOr(config.isNull('q_lora_rank') ? 0 : queryRank, 'q_lora_rank'),
    latentSize: config.size('kv_lora_rank'),
    nopeSize,
    ropeSize,
    valueSize: config.size('v_head_dim'),
    normEpsilon: LATENT_NORM_EPSILON,
    scoreScale: inverseRoot(nopeSize + ropeSize),
    rotary: null,
  };
}

/** Names of the tensors of latent attention. kv_b_proj holds, head by head, W_UK and below it W_UV. */
export function latentNames(mixer: LatentMixer): TensorNames['layer'] {
  const { heads, queryRank, latentSize, nopeSize, valueSize } = mixer;
  const step = nopeSize + valueSize;
  const expansion = (first: number, count: number): ReturnType<typeof everyRows> =>
    everyRows('self_attn.kv_b_proj.weight', [heads * step, latentSize], { first, count, step });
  const key = expansion(0, nopeSize);
  return {
    queryLow: 'self_attn.q_a_proj.weight',
    queryLowNorm: 'self_attn.q_a_layernorm.weight',
    query: queryRank === 0 ? 'self_attn.q_proj.weight' : 'self_attn.q_b_proj.weight',
    latent: 'self_attn.kv_a_proj_with_mqa.weight',
    latentNorm: 'self_attn.kv_a_layernorm.weight',
    keyExpansion: { ...key, slice: { ...key.slice, transposed: true } },
    valueExpansion: expansion(nopeSize, valueSize),
  };
}
