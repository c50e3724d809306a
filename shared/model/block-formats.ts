/**
 * Block formats: weights that are shipped as codes with scales (native/include/odmoe/formats.h has the same, with the places of the bytes). A
 * split and the device format of the same name hold the same. docs/formats.md has the formulas.
 */
import { assertInvariant } from '../base/errors/assert-invariant.js';

/** Formats of GGUF: a row is a sequence of whole blocks, in one plane. */
export const GGUF_BLOCKS = {
  q4_0: { columns: 32, bytes: 18 },
  q4_1: { columns: 32, bytes: 20 },
  q5_0: { columns: 32, bytes: 22 },
  q5_1: { columns: 32, bytes: 24 },
  q8_0: { columns: 32, bytes: 34 },
  q2_k: { columns: 256, bytes: 84 },
  q3_k: { columns: 256, bytes: 110 },
  q4_k: { columns: 256, bytes: 144 },
  q5_k: { columns: 256, bytes: 176 },
  q6_k: { columns: 256, bytes: 210 },
  iq4_nl: { columns: 32, bytes: 18 },
  iq4_xs: { columns: 256, bytes: 136 },
} as const;
export type GgufBlock = keyof typeof GGUF_BLOCKS;

/** Formats with codes in plane 0 and scales in plane 1, whose numbers are fixed. */
export const FIXED_BLOCKS = ['fp8-row', 'fp8-tile', 'mxfp8', 'nvfp4-multiplied', 'nvfp4-divided'] as const;
export type FixedBlock = (typeof FIXED_BLOCKS)[number];

/** In the order of C++'s enumerations, without the parameters of grouped codes. */
export const BLOCK_FORMATS = [
  ...FIXED_BLOCKS,
  'q4_0',
  'q4_1',
  'q5_0',
  'q5_1',
  'q8_0',
  'q2_k',
  'q3_k',
  'q4_k',
  'q5_k',
  'q6_k',
  'iq4_nl',
  'iq4_xs',
  'grouped4',
  'grouped8',
] as const;

export const GROUP_SCALES = ['bf16', 'fp16', 'fp32'] as const;
export type GroupScale = (typeof GROUP_SCALES)[number];

/** Most columns of a group, and most bytes of the column order in a row. */
export const GROUP_LIMIT = 65_535;

/**
 * Codes of 4 or 8 bits with a scale for a group of columns of a row: INT4 of compressed-tensors, GPTQ, AWQ. Weight = (code - zero) * scale.
 */
export interface GroupedCodes {
  bits: 4 | 8;
  scales: GroupScale;
  /** Each group has a zero point; otherwise it is 8 or 128. */
  zeros: boolean;
  /** Columns with one scale, a multiple of 32; 0: the whole row. */
  group: number;
  /** Bytes that each row has of the order of the columns; 0: the columns are in order. */
  orderBytes: number;
}

/** "grouped4-bf16-g32", "grouped8-fp16-row-z-o6". */
export type GroupedFormat = `grouped${4 | 8}-${string}`;
export type BlockFormat = GgufBlock | FixedBlock | GroupedFormat;

export function isGgufBlock(name: string): name is GgufBlock {
  return Object.hasOwn(GGUF_BLOCKS, name);
}

function isFixedBlock(name: string): name is FixedBlock {
  return (FIXED_BLOCKS as readonly string[]).includes(name);
}

export function isGroupedFormat(name: string): name is GroupedFormat {
  return readGroupedName(name) !== null;
}

export function isBlockFormat(name: string): name is BlockFormat {
  return isGgufBlock(name) || isFixedBlock(name) || isGroupedFormat(name);
}

export function groupedName({ bits, scales, zeros, group, orderBytes }: GroupedCodes): GroupedFormat {
  const columns = group === 0 ? 'row' : `g${group}`;
  return `grouped${bits}-${scales}-${columns}${zeros ? '-z' : ''}${orderBytes > 0 ? `-o${orderBytes}` : ''}`;
}

const GROUPED_NAME =
  /^grouped(?<bits>[48])-(?<scales>bf16|fp16|fp32)-(?:row|g(?<group>[1-9]\d{0,4}))(?<zeros>-z)?(?:-o(?<order>[1-9]\d{0,4}))?$/;

/** Null for another name, and for numbers beyond the limits. */
function readGroupedName(name: string): GroupedCodes | null {
  const groups = GROUPED_NAME.exec(name)?.groups;
  if (groups === undefined) return null;
  const group = Number(groups['group'] ?? 0);
  const orderBytes = Number(groups['order'] ?? 0);
  if (group > GROUP_LIMIT || orderBytes > GROUP_LIMIT || group % 32 !== 0) return null;
  const scales = GROUP_SCALES.find((scale) => scale === groups['scales']) ?? 'bf16';
  return { bits: groups['bits'] === '4' ? 4 : 8, scales, zeros: groups['zeros'] !== undefined, group, orderBytes };
}

export function groupedCodes(format: GroupedFormat): GroupedCodes {
  const codes = readGroupedName(format);
  assertInvariant(codes !== null, () => `${format} names grouped codes`);
  return codes;
}

/** Bytes of a row of `columns` values in each plane. */
export function blockPlaneRowBytes(format: BlockFormat, columns: number): number[] {
  if (isGgufBlock(format)) {
    const block = GGUF_BLOCKS[format];
    return [Math.ceil(columns / block.columns) * block.bytes];
  }
  switch (format) {
    case 'fp8-row':
      return [columns, 4];
    case 'fp8-tile':
      return [columns, 4 * Math.ceil(columns / 128)];
    case 'mxfp8':
      return [columns, Math.ceil(columns / 32)];
    case 'nvfp4-multiplied':
    case 'nvfp4-divided':
      return [Math.ceil(columns / 2), Math.ceil(columns / 16) + 4];
    default: {
      const { bits, scales, zeros, group, orderBytes } = groupedCodes(format);
      const groups = group === 0 ? 1 : Math.ceil(columns / group);
      const zeroBytes = zeros ? Math.ceil((groups * bits) / 8) : 0;
      return [Math.ceil((columns * bits) / 8), groups * (scales === 'fp32' ? 4 : 2) + zeroBytes + orderBytes];
    }
  }
}
