/** Formats of whole models by the names that people know: which matrix is shipped in which format. */
import {
  type BlockFormat,
  GGUF_BLOCKS,
  type GgufBlock,
  isBlockFormat,
  isGgufBlock,
} from '../../shared/model/block-formats.js';
import type { DenseRole } from '../../shared/model/dense-roles.js';
import type { ExpertMatrix, Split } from '../../shared/model/tensor-source.js';

/** A matrix of a model, with what decides about its format. */
export interface MatrixPlace {
  matrix: DenseRole | ExpertMatrix;
  columns: number;
  /** Counted over all layers; 0 for matrices of the whole model. */
  layer: number;
  layers: number;
  /** Experts of a layer. */
  experts: number;
  tiedEmbeddings: boolean;
}

/** `plain`: the matrix is not quantized. */
export type MatrixFormat = Split | 'plain';

export interface WeightMix {
  name: string;
  formatOf: (place: MatrixPlace) => MatrixFormat;
}

const EXPERT_MATRICES: readonly string[] = ['gate', 'up', 'down'] satisfies ExpertMatrix[];

function isOfExpert({ matrix }: MatrixPlace): boolean {
  return EXPERT_MATRICES.includes(matrix);
}

function isOfVocabulary({ matrix }: MatrixPlace): boolean {
  return matrix === 'embedding' || matrix === 'lmHead';
}

/**
 * The formats of llama.cpp for rows that are no whole number of 256 columns, and for rows that are none of 32 (fact from its
 * src/llama-quant.cpp, llama_tensor_get_type).
 */
const NARROW_BLOCKS: Partial<Record<GgufBlock, GgufBlock>> = {
  q2_k: 'iq4_nl',
  q3_k: 'iq4_nl',
  iq4_xs: 'iq4_nl',
  q4_k: 'q5_0',
  q5_k: 'q5_1',
  q6_k: 'q8_0',
};

function fitting(block: GgufBlock, columns: number): Split {
  const narrow = columns % GGUF_BLOCKS[block].columns === 0 ? block : (NARROW_BLOCKS[block] ?? block);
  return columns % GGUF_BLOCKS[narrow].columns === 0 ? narrow : 'none-fp16';
}

/** llama.cpp leaves routers and the weight of the shared expert in FP32; DeepSeek ships the maps of residual streams so. */
function staysPlain({ matrix }: MatrixPlace): boolean {
  return PLAIN_MATRICES.has(matrix);
}

const PLAIN_MATRICES: ReadonlySet<string> = new Set<DenseRole>([
  ...(['router', 'alwaysWeight', 'mixerStreamMap', 'feedForwardStreamMap', 'finalStreamMap'] as const),
]);

/** Every matrix in one format of GGUF. */
function ggufMix(name: string, block: GgufBlock): WeightMix {
  return {
    name,
    formatOf: (place) => (staysPlain(place) ? 'none-fp32' : fitting(block, place.columns)),
  };
}

/** The layers whose values and down matrices llama.cpp's "M" mixes give more bits: the first and the last eighth, and every third between. */
function hasMoreBits(layer: number, layers: number): boolean {
  const eighth = Math.floor(layers / 8);
  return layer < eighth || layer >= Math.floor((7 * layers) / 8) || (layer - eighth) % 3 === 2;
}

/**
 * llama.cpp's Q4_K_M and Q5_K_M (facts from its src/llama-quant.cpp): the head (and an embedding that is the head, too), and in about half of the
 * layers values and down matrices, in Q6_K. Models of eight experts have other formats in attention.
 */
function mediumMix(name: string, base: 'q4_k' | 'q5_k'): WeightMix {
  const blockOf = ({ matrix, layer, layers, experts, tiedEmbeddings }: MatrixPlace): GgufBlock => {
    const more = hasMoreBits(layer, layers) ? 'q6_k' : base;
    if (matrix === 'lmHead') return 'q6_k';
    if (matrix === 'embedding') return tiedEmbeddings ? 'q6_k' : base;
    if (experts === 8 && (matrix === 'key' || matrix === 'value')) return 'q8_0';
    if (experts === 8 && matrix === 'mixerOutput') return 'q5_k';
    return matrix === 'down' || matrix === 'alwaysDown' || matrix === 'value' ? more : base;
  };
  return {
    name,
    formatOf: (place) => (staysPlain(place) ? 'none-fp32' : fitting(blockOf(place), place.columns)),
  };
}

/** Experts in this format, and nothing else. */
function expertsOnly(name: string, split: 'mxfp4' | BlockFormat): WeightMix {
  return { name, formatOf: (place) => (isOfExpert(place) ? split : 'plain') };
}

const MIXES: readonly WeightMix[] = [
  { name: 'BF16', formatOf: () => 'none-bf16' },
  // As DeepSeek ships its models: embedding, head and routers are plain.
  { name: 'FP8', formatOf: (place) => (isOfVocabulary(place) || staysPlain(place) ? 'plain' : 'fp8') },
  expertsOnly('MXFP4', 'mxfp4'),
  expertsOnly('NVFP4', 'nvfp4-multiplied'),
  // As Kimi-K2-Thinking is shipped: groups of 32 columns, scales in BF16, and experts alone.
  expertsOnly('INT4', 'grouped4-bf16-g32'),
  ggufMix('Q8_0', 'q8_0'),
  ggufMix('Q6_K', 'q6_k'),
  mediumMix('Q5_K_M', 'q5_k'),
  mediumMix('Q4_K_M', 'q4_k'),
];

/** Names for people. Names of block formats are valid, too. */
export const WEIGHT_MIXES: readonly string[] = MIXES.map(({ name }) => name);

/**
 * The formats of a model by a name: a mix, a block format (one of GGUF is for every matrix, another one for experts), or two of these as
 * EXPERTS+REST. Upper and lower case are the same. Null: the name is not known.
 */
export function weightMix(name: string): WeightMix | null {
  const parts = name.split('+');
  const [experts, rest, ...more] = parts.map(namedMix);
  if (experts === undefined || experts === null || rest === null || more.length > 0) return null;
  if (rest === undefined) return experts;
  return {
    name: `${experts.name}+${rest.name}`,
    formatOf: (place) => (isOfExpert(place) ? experts : rest).formatOf(place),
  };
}

function namedMix(name: string): WeightMix | null {
  const lower = name.toLowerCase();
  const mix = MIXES.find((candidate) => candidate.name.toLowerCase() === lower);
  if (mix !== undefined) return mix;
  if (!isBlockFormat(lower)) return null;
  return isGgufBlock(lower) ? ggufMix(lower, lower) : expertsOnly(lower, lower);
}
