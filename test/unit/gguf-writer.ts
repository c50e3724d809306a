/** Writes GGUF files for tests, also wrong ones: nothing is checked. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { GgufHeaderBytes, type GgufByteSource } from '../../packs/gguf/gguf-header-bytes.js';
import { parseGgufHeader, type GgufHeader } from '../../packs/gguf/gguf-header.js';
import { GGUF_TYPES, type GgufScalar, type GgufType } from '../../packs/gguf/gguf-types.js';

type Write = (bytes: Buffer, value: number) => unknown;

function fixed(sizeBytes: number, write: Write): (value: GgufScalar) => Buffer {
  return (value) => {
    const bytes = Buffer.alloc(sizeBytes);
    write(bytes, Number(value));
    return bytes;
  };
}

/** The types of values: the number in the file, and the bytes of a value. */
const VALUE_TYPES = {
  u8: [0, fixed(1, (bytes, value) => bytes.writeUInt8(value))],
  i8: [1, fixed(1, (bytes, value) => bytes.writeInt8(value))],
  u16: [2, fixed(2, (bytes, value) => bytes.writeUInt16LE(value))],
  i16: [3, fixed(2, (bytes, value) => bytes.writeInt16LE(value))],
  u32: [4, fixed(4, (bytes, value) => bytes.writeUInt32LE(value))],
  i32: [5, fixed(4, (bytes, value) => bytes.writeInt32LE(value))],
  f32: [6, fixed(4, (bytes, value) => bytes.writeFloatLE(value))],
  bool: [7, fixed(1, (bytes, value) => bytes.writeUInt8(value))],
  text: [8, (value: GgufScalar) => textBytes(String(value))],
  u64: [10, fixed(8, (bytes, value) => bytes.writeBigUInt64LE(BigInt(value)))],
  i64: [11, fixed(8, (bytes, value) => bytes.writeBigInt64LE(BigInt(value)))],
  f64: [12, fixed(8, (bytes, value) => bytes.writeDoubleLE(value))],
} as const;
export type WrittenType = keyof typeof VALUE_TYPES;
export const WRITTEN_TYPES = Object.keys(VALUE_TYPES) as WrittenType[];

export interface WrittenKey {
  name: string;
  type: WrittenType;
  /** A list is written as a list of values of the type. */
  value: GgufScalar | readonly GgufScalar[];
}

export interface WrittenTensor {
  name: string;
  /** A number for types that are not read. */
  type: GgufType | number;
  /** Outermost first. */
  dimensions: readonly number[];
  data: Uint8Array;
  /** From the start of the data; left out: the right place. */
  offsetBytes?: number;
}

export interface WrittenFile {
  keys?: readonly WrittenKey[];
  tensors?: readonly WrittenTensor[];
  version?: number;
  /** Left out: 32, without a key. */
  alignment?: number;
}

export function u32(value: number): Buffer {
  return fixed(4, (bytes, number) => bytes.writeUInt32LE(number))(value);
}

export function u64(value: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

/** A text as a GGUF file has it. */
export function textBytes(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function keyBytes({ name, type, value }: WrittenKey): Buffer {
  const [number, write] = VALUE_TYPES[type];
  if (typeof value !== 'object') return Buffer.concat([textBytes(name), u32(number), write(value)]);
  return Buffer.concat([textBytes(name), u32(9), u32(number), u64(value.length), ...value.map(write)]);
}

function padded(bytes: Uint8Array, alignment: number): Buffer {
  return Buffer.concat([bytes, Buffer.alloc((alignment - (bytes.length % alignment)) % alignment)]);
}

/** All bytes of a file: the header, and the tensors' data, each padded to the alignment. */
export function ggufBytes({ keys = [], tensors = [], version = 3, alignment }: WrittenFile): Buffer {
  const alignmentKey: WrittenKey = { name: 'general.alignment', type: 'u32', value: alignment ?? 0 };
  const allKeys = alignment === undefined ? keys : [...keys, alignmentKey];
  const unit = alignment ?? 32;
  let offsetBytes = 0;
  const entries = tensors.map((tensor) => {
    const number = typeof tensor.type === 'number' ? tensor.type : GGUF_TYPES[tensor.type].number;
    const entry = Buffer.concat([
      textBytes(tensor.name),
      u32(tensor.dimensions.length),
      ...[...tensor.dimensions].reverse().map(u64),
      u32(number),
      u64(tensor.offsetBytes ?? offsetBytes),
    ]);
    offsetBytes += Math.ceil(tensor.data.length / unit) * unit;
    return entry;
  });
  const header = Buffer.concat([
    Buffer.from('GGUF'),
    u32(version),
    u64(tensors.length),
    u64(allKeys.length),
    ...allKeys.map(keyBytes),
    ...entries,
  ]);
  return Buffer.concat([padded(header, unit), ...tensors.map(({ data }) => padded(data, unit))]);
}

/** A split model, as llama-gguf-split writes it. The first part has the model's keys. */
export function ggufParts(keys: readonly WrittenKey[], parts: readonly (readonly WrittenTensor[])[]): Buffer[] {
  const total = parts.reduce((count, tensors) => count + tensors.length, 0);
  return parts.map((tensors, index) => {
    const split: WrittenKey[] = [
      { name: 'split.no', type: 'u16', value: index },
      { name: 'split.count', type: 'u16', value: parts.length },
      { name: 'split.tensors.count', type: 'i32', value: total },
    ];
    return ggufBytes({ keys: index === 0 ? [...keys, ...split] : split, tensors });
  });
}

/** Writes parts under their names. Gives their paths. */
export async function writeGgufParts(directory: string, stem: string, parts: readonly Buffer[]): Promise<string[]> {
  const digits = (number: number): string => String(number).padStart(5, '0');
  const paths = parts.map((_, index) =>
    join(directory, `${stem}-${digits(index + 1)}-of-${digits(parts.length)}.gguf`),
  );
  for (const [index, path] of paths.entries()) await writeFile(path, parts[index] ?? '');
  return paths;
}

/** A file in memory. It counts the bytes and the calls of what is read. */
export class GgufMemory implements GgufByteSource {
  readBytes = 0;
  readCalls = 0;

  constructor(private readonly bytes: Uint8Array) {}

  get sizeBytes(): number {
    return this.bytes.length;
  }

  async read(offsetBytes: number, into: Uint8Array): Promise<void> {
    this.readBytes += into.length;
    this.readCalls += 1;
    if (offsetBytes + into.length > this.bytes.length) throw new Error('read past the end of the file');
    into.set(this.bytes.subarray(offsetBytes, offsetBytes + into.length));
  }
}

export async function parseGgufBytes(bytes: Uint8Array, path = 'test.gguf'): Promise<GgufHeader> {
  return parseGgufHeader(new GgufHeaderBytes(new GgufMemory(bytes), path));
}
