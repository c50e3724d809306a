/** Valid random bytes of matrices in the quantized forms, and what a checkpoint needs for them. */
import { RandomBits } from '../../bench/synth/gaussian-values.js';
import {
  groupedCodes,
  isGgufBlock,
  isGroupedFormat,
  GGUF_BLOCKS,
  type GgufBlock,
} from '../../shared/model/block-formats.js';
import { hasE4m3Codes, planeRowBytes, type QuantizedSplit } from '../../shared/model/weight-dtype.js';

/** Every quantized split, of grouped codes some with all their parts. */
export const QUANTIZED_SPLITS: readonly QuantizedSplit[] = [
  'mxfp4',
  'fp8',
  'fp8-row',
  'fp8-tile',
  'mxfp8',
  'nvfp4-multiplied',
  'nvfp4-divided',
  ...(Object.keys(GGUF_BLOCKS) as GgufBlock[]),
  'grouped4-bf16-g32',
  'grouped4-fp16-g128-z-o2',
  'grouped8-fp32-row',
];

/** Places of FP16 numbers in a block. */
const HALVES: Readonly<Record<GgufBlock, readonly number[]>> = {
  q4_0: [0],
  q4_1: [0, 2],
  q5_0: [0],
  q5_1: [0, 2],
  q8_0: [0],
  q2_k: [80, 82],
  q3_k: [108],
  q4_k: [0, 2],
  q5_k: [0, 2],
  q6_k: [208],
  iq4_nl: [0],
  iq4_xs: [0],
};

const BLOCK_ROWS = 128;

/** The planes of a matrix. */
export function blockValues(split: QuantizedSplit, rows: number, columns: number, seed: number): Uint8Array[] {
  const random = new RandomBits(seed, 1);
  const widths = planeRowBytes(split, columns);
  const planes = widths.map((width) => Uint8Array.from({ length: rows * width }, () => random.next() & 255));
  const [codes = new Uint8Array(), scales = new Uint8Array()] = planes;
  if (isGgufBlock(split)) {
    const view = new DataView(codes.buffer);
    const { bytes } = GGUF_BLOCKS[split];
    for (let at = 0; at < codes.length; at += bytes)
      for (const half of HALVES[split]) view.setUint16(at + half, 0x1c00, true);
    return planes;
  }
  if (hasE4m3Codes(split)) codes.forEach((_, at) => (codes[at] = gaussianE4m3(random)));
  for (let row = 0; row < rows; row += 1) {
    const width = widths[1] ?? 0;
    fillScales(split, row, columns, scales.subarray(row * width, (row + 1) * width), random);
  }
  return planes;
}

/** An exponent e is half as likely as e + 1, up to 12. */
function gaussianE4m3(random: RandomBits): number {
  const bits = random.next();
  const exponent = Math.max(1, 12 - Math.clz32(bits | 1));
  return (exponent << 3) | (random.next() & 0x87);
}

function fillScales(
  split: Exclude<QuantizedSplit, GgufBlock>,
  row: number,
  columns: number,
  scales: Uint8Array,
  random: RandomBits,
): void {
  const view = new DataView(scales.buffer, scales.byteOffset, scales.length);
  if (split === 'mxfp4' || split === 'mxfp8') scales.forEach((byte, at) => (scales[at] = 118 + (byte & 3)));
  else if (split === 'fp8-row') view.setFloat32(0, 0.01, true);
  else if (split === 'fp8' || split === 'fp8-tile') {
    const block = Math.floor(row / BLOCK_ROWS);
    for (let at = 0; at < scales.length; at += 4)
      view.setFloat32(at, Math.fround(0.01 + block * 0.37 + at * 0.0013), true);
  } else if (isGroupedFormat(split)) fillGroups(split, row, columns, view, random);
  else {
    scales.forEach((byte, at) => (scales[at] = 0x28 | (byte & 7)));
    view.setFloat32(scales.length - 4, split === 'nvfp4-divided' ? 40 : 0.02, true);
  }
}

/** Scales near 0.01, and the columns in order. Zero points stay random. */
function fillGroups(split: QuantizedSplit, row: number, columns: number, view: DataView, random: RandomBits): void {
  if (!isGroupedFormat(split)) return;
  const { scales, group, orderBytes } = groupedCodes(split);
  const groups = group === 0 ? 1 : Math.ceil(columns / group);
  for (let at = 0; at < groups; at += 1) {
    const low = random.next();
    if (scales === 'fp32') view.setFloat32(4 * at, 0.01 + (low & 1023) / 1e5, true);
    else view.setUint16(2 * at, scales === 'bf16' ? 0x3c00 | (low & 127) : 0x2000 | (low & 1023), true);
  }
  const order = Uint8Array.from({ length: 2 * columns }, (_, byte) => (byte % 2 === 0 ? byte / 2 : byte >> 9));
  const piece = order.subarray(row * orderBytes, (row + 1) * orderBytes);
  for (let at = 0; at < orderBytes; at += 1) view.setUint8(view.byteLength - orderBytes + at, piece[at] ?? 0);
}

/** Bytes of the tensors that a checkpoint has for such a matrix. */
export function shippedBytes(split: QuantizedSplit, rows: number, columns: number): number {
  const [codes = 0, scales = 0] = planeRowBytes(split, columns).map((width) => width * rows);
  if (split === 'fp8' || split === 'fp8-tile')
    return codes + 4 * Math.ceil(rows / BLOCK_ROWS) * Math.ceil(columns / 128);
  if (split === 'fp8-row') return codes + 4;
  if (split === 'nvfp4-multiplied' || split === 'nvfp4-divided') return codes + scales - 4 * rows + 4;
  if (!isGroupedFormat(split)) return codes + scales;
  const { orderBytes } = groupedCodes(split);
  return codes + scales - orderBytes * rows + (orderBytes > 0 ? 4 * columns : 0);
}
