import type { SlicedSplit, Split } from '../../shared/model/tensor-source.js';
import type { QuantizedSplit } from '../../shared/model/weight-dtype.js';

/** Splits that cut values one by one. */
export type ValueSplit = Exclude<Split, QuantizedSplit | SlicedSplit>;

/** Planes and checksums by docs/pack-format.md, one value at a time. The native code must give the same. */

export function referenceSplitPlanes(values: Uint8Array, split: ValueSplit): Uint8Array[] {
  const view = new DataView(values.buffer, values.byteOffset, values.byteLength);
  switch (split) {
    case 'none-bf16':
    case 'none-fp16':
    case 'none-fp32':
      return [values.slice()];
    case 'bf16-e8-sm8':
      return perValue(values.length / 2, 2, (i) => {
        const bits = view.getUint16(i * 2, true);
        return [[(bits >> 7) & 0xff], [((bits >> 8) & 0x80) | (bits & 0x7f)]];
      });
    case 'fp16-hi8-lo8':
      return perValue(values.length / 2, 2, (i) => {
        const bits = view.getUint16(i * 2, true);
        return [[bits >> 8], [bits & 0xff]];
      });
    case 'fp16-e5-lo8-s1m2':
      return perValue(values.length / 2, 3, (i) => {
        const bits = view.getUint16(i * 2, true);
        return [[(bits >> 10) & 0x1f], [bits & 0xff], [((bits >> 15) << 2) | ((bits >> 8) & 3)]];
      });
    case 'fp32-e8-sm8-r16':
      return perValue(values.length / 4, 3, (i) => {
        const bits = view.getUint32(i * 4, true);
        return [
          [(bits >>> 23) & 0xff],
          [((bits >>> 24) & 0x80) | ((bits >>> 16) & 0x7f)],
          [bits & 0xff, (bits >>> 8) & 0xff],
        ];
      });
  }
}

function perValue(values: number, planeCount: number, cut: (index: number) => number[][]): Uint8Array[] {
  const planes = Array.from({ length: planeCount }, (): number[] => []);
  for (let index = 0; index < values; index += 1) {
    const bytes = cut(index);
    planes.forEach((plane, number) => plane.push(...(bytes[number] ?? [])));
  }
  return planes.map((plane) => Uint8Array.from(plane));
}

/** Puts the values together again from their planes. */
export function referenceMergePlanes(planes: readonly Uint8Array[], split: Split): Uint8Array {
  const [first = new Uint8Array(0), second = new Uint8Array(0), third = new Uint8Array(0)] = planes;
  if (split === 'none-bf16' || split === 'none-fp16' || split === 'none-fp32') return first.slice();
  const merged = Buffer.alloc(first.length * (split === 'fp32-e8-sm8-r16' ? 4 : 2));
  first.forEach((high, i) => {
    const low = second[i] ?? 0;
    const signExponentMantissa = ((low & 0x80) << 8) | (high << 7) | (low & 0x7f);
    if (split === 'bf16-e8-sm8') merged.writeUInt16LE(signExponentMantissa, i * 2);
    else if (split === 'fp16-e5-lo8-s1m2') {
      const top = third[i] ?? 0;
      merged.writeUInt16LE(((top >> 2) << 15) | (high << 10) | ((top & 3) << 8) | low, i * 2);
    } else if (split === 'fp16-hi8-lo8') merged.writeUInt16LE((high << 8) | low, i * 2);
    else {
      merged.writeUInt16LE(signExponentMantissa, i * 4 + 2);
      merged.writeUInt8(third[i * 2] ?? 0, i * 4);
      merged.writeUInt8(third[i * 2 + 1] ?? 0, i * 4 + 1);
    }
  });
  return merged;
}

/** CRC-32C (Castagnoli), a bit at a time; `seed` is the checksum of what came before. */
export function referenceCrc32c(bytes: Uint8Array, seed: number): number {
  let crc = ~seed;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc >>> 0;
}
