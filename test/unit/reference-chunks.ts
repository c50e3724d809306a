/** Decodes coded chunks one value at a time, by docs/pack-format.md, "Codecs". The native decoders must give the same. */

type BlockDecoder = (block: Uint8Array, plainBytes: number) => number[];

/** Codecs that are our own; zstd and LZ4 have references elsewhere. */
export type OwnCodec = 'fixed4' | 'huffman' | 'packed3' | 'e4m3';

const OWN_CODECS: Record<OwnCodec, { id: number; tableBytes: number; open: (table: Uint8Array) => BlockDecoder }> = {
  fixed4: { id: 3, tableBytes: 16, open: openFixed4 },
  huffman: { id: 4, tableBytes: 128, open: openHuffman },
  packed3: { id: 5, tableBytes: 0, open: () => unpack3 },
  e4m3: { id: 6, tableBytes: 128, open: openE4m3 },
};

export function referenceDecodeChunk(codec: OwnCodec, stored: Uint8Array, plainBytes: number): Uint8Array {
  const { id, tableBytes, open } = OWN_CODECS[codec];
  const view = viewOf(stored);
  const header = [...stored.subarray(0, 4)];
  if (String(header) !== String([0x4f, 0x43, id, 1])) throw new Error(`a header of ${String(header)}`);
  const blockBytes = view.getUint32(4, true);
  if (view.getBigUint64(8, true) !== BigInt(plainBytes)) throw new Error('another size');
  const decode = open(stored.subarray(16, 16 + tableBytes));
  const entry = (index: number): number => view.getUint32(16 + tableBytes + 4 * index, true);
  const plain = new Uint8Array(plainBytes);
  for (let index = 0; index * blockBytes < plainBytes; index += 1) {
    const start = entry(index) & ~15;
    const end = (entry(index + 1) & ~15) - (entry(index + 1) & 15);
    const block = stored.subarray(start, end);
    const size = Math.min(blockBytes, plainBytes - index * blockBytes);
    plain.set(block.length === size ? block : decode(block, size), index * blockBytes);
  }
  return plain;
}

function openFixed4(table: Uint8Array): BlockDecoder {
  return (block, plainBytes) => {
    const plain = Array.from({ length: plainBytes }, (_, i) => {
      const byte = block[Math.floor(i / 32) * 16 + (i % 16)] ?? 0;
      return table[i % 32 < 16 ? byte & 15 : byte >> 4] ?? 0;
    });
    const view = viewOf(block);
    const windows = Math.ceil(plainBytes / 65536);
    const ends = Array.from({ length: windows }, (_, i) =>
      view.getUint32(Math.ceil(plainBytes / 32) * 16 + 4 * i, true),
    );
    const positions = Math.ceil(plainBytes / 32) * 16 + 4 * windows;
    const symbols = positions + 2 * (ends.at(-1) ?? 0);
    ends.forEach((end, window) => {
      for (let escape = ends[window - 1] ?? 0; escape < end; escape += 1) {
        plain[window * 65536 + view.getUint16(positions + 2 * escape, true)] = block[symbols + escape] ?? 0;
      }
    });
    return plain;
  };
}

function openHuffman(table: Uint8Array): BlockDecoder {
  const lengths = [...table].flatMap((byte) => [byte & 15, byte >> 4]);
  /** Value by length and code. */
  const values = new Map<string, number>();
  let code = 0;
  for (let length = 1; length <= 11; length += 1, code *= 2) {
    lengths.forEach((candidate, value) => {
      if (candidate !== length) return;
      values.set(code.toString(2).padStart(length, '0'), value);
      code += 1;
    });
  }
  return (block, plainBytes) => {
    const view = viewOf(block);
    const streams = Math.ceil(plainBytes / 128);
    const groups = Math.ceil(streams / 32);
    const plain: number[] = [];
    let start = 0;
    for (let stream = 0; stream < streams; stream += 1) {
      if (stream % 32 === 0) start = view.getUint32((stream / 32) * 4, true);
      const length = block[groups * 4 + stream] ?? 0;
      plain.push(
        ...decodeStream(block.subarray(start, start + length), Math.min(128, plainBytes - stream * 128), values),
      );
      start += length;
    }
    return plain;
  };
}

function decodeStream(stream: Uint8Array, count: number, values: ReadonlyMap<string, number>): number[] {
  const plain: number[] = [];
  let bits = '';
  for (let at = 0; plain.length < count; at += 1) {
    if (at >= stream.length * 8) throw new Error('a stream is too short');
    bits += ((stream[at >> 3] ?? 0) >> (at & 7)) & 1;
    const value = values.get(bits);
    if (value === undefined) continue;
    plain.push(value);
    bits = '';
  }
  return plain;
}

function unpack3(block: Uint8Array, plainBytes: number): number[] {
  return Array.from({ length: plainBytes }, (_, i) => {
    const at = Math.floor(i / 8) * 3;
    const bits = (block[at] ?? 0) | ((block[at + 1] ?? 0) << 8) | ((block[at + 2] ?? 0) << 16);
    return (bits >> (3 * (i % 8))) & 7;
  });
}

function openE4m3(table: Uint8Array): BlockDecoder {
  const decode = openHuffman(table);
  return (block, plainBytes) => {
    const half = Math.ceil(plainBytes / 32) * 16;
    const exponents = decode(block.subarray(half), half);
    return Array.from({ length: plainBytes }, (_, i) => {
      const at = Math.floor(i / 32) * 16 + (i % 16);
      const fourBits = (byte = 0): number => (i % 32 < 16 ? byte & 15 : byte >> 4);
      const signMantissa = fourBits(block[at]);
      return ((signMantissa >> 3) << 7) | (fourBits(exponents[at]) << 3) | (signMantissa & 7);
    });
  };
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
