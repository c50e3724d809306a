import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { corruptGguf } from './gguf-errors.js';
import { HEADER_LIMIT_BYTES, PIECE_BYTES, TEXT_LENGTH_BYTES, type GgufHeaderBytes } from './gguf-header-bytes.js';
import type { GgufScalar, GgufValue } from './gguf-types.js';

const TEXT = 8;
const LIST = 9;
/** Memory for a number or for a pointer to a text in a list. */
const ELEMENT_MEMORY_BYTES = 8;

/** A type of numbers or flags in a file. read: null where the bytes stand for no value. */
interface ScalarType {
  name: string;
  sizeBytes: number;
  read(bytes: Buffer, at: number): number | boolean | null;
}

function exact(value: bigint): number | null {
  const rounded = Number(value);
  return BigInt(rounded) === value ? rounded : null;
}

function flag(value: number): boolean | null {
  return value <= 1 ? value === 1 : null;
}

/** By the type's number in the file (docs/gguf.md of ggml). */
const SCALAR_TYPES: ReadonlyMap<number, ScalarType> = new Map<number, ScalarType>([
  [0, { name: 'u8', sizeBytes: 1, read: (bytes, at) => bytes.readUInt8(at) }],
  [1, { name: 'i8', sizeBytes: 1, read: (bytes, at) => bytes.readInt8(at) }],
  [2, { name: 'u16', sizeBytes: 2, read: (bytes, at) => bytes.readUInt16LE(at) }],
  [3, { name: 'i16', sizeBytes: 2, read: (bytes, at) => bytes.readInt16LE(at) }],
  [4, { name: 'u32', sizeBytes: 4, read: (bytes, at) => bytes.readUInt32LE(at) }],
  [5, { name: 'i32', sizeBytes: 4, read: (bytes, at) => bytes.readInt32LE(at) }],
  [6, { name: 'f32', sizeBytes: 4, read: (bytes, at) => bytes.readFloatLE(at) }],
  [7, { name: 'bool', sizeBytes: 1, read: (bytes, at) => flag(bytes.readUInt8(at)) }],
  [10, { name: 'u64', sizeBytes: 8, read: (bytes, at) => exact(bytes.readBigUInt64LE(at)) }],
  [11, { name: 'i64', sizeBytes: 8, read: (bytes, at) => exact(bytes.readBigInt64LE(at)) }],
  [12, { name: 'f64', sizeBytes: 8, read: (bytes, at) => bytes.readDoubleLE(at) }],
]);

/**
 * Reads the value of a key: its type and what follows.
 * @param what the key, for messages
 * @throws MODEL_CORRUPT, MODEL_UNSUPPORTED (lists of lists)
 */
export async function takeGgufValue(bytes: GgufHeaderBytes, what: string): Promise<GgufValue> {
  const type = await bytes.takeUint32(what);
  if (type === LIST) return takeList(bytes, what);
  bytes.keepMemory(ELEMENT_MEMORY_BYTES, what);
  if (type === TEXT) return bytes.takeText(HEADER_LIMIT_BYTES, what);
  const scalar = scalarType(type, bytes.path, what);
  return readScalar(scalar, await bytes.take(scalar.sizeBytes, what), 0, bytes.path, what);
}

async function takeList(bytes: GgufHeaderBytes, what: string): Promise<GgufScalar[]> {
  const type = await bytes.takeUint32(what);
  const count = await bytes.takeCount(what);
  if (type === LIST) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${bytes.path}: ${what}: a list of lists, which is not read; convert the model with a current llama.cpp`,
    );
  }
  if (type === TEXT) return takeTexts(bytes, count, what);
  const scalar = scalarType(type, bytes.path, what);
  bytes.requireLeft(count * scalar.sizeBytes, what);
  bytes.keepMemory(count * ELEMENT_MEMORY_BYTES, what);
  const values: GgufScalar[] = [];
  const most = Math.floor(PIECE_BYTES / scalar.sizeBytes);
  while (values.length < count) {
    const some = Math.min(count - values.length, most);
    const piece = await bytes.take(some * scalar.sizeBytes, what);
    for (let at = 0; at < piece.length; at += scalar.sizeBytes) {
      values.push(readScalar(scalar, piece, at, bytes.path, what));
    }
  }
  return values;
}

async function takeTexts(bytes: GgufHeaderBytes, count: number, what: string): Promise<string[]> {
  bytes.requireLeft(count * TEXT_LENGTH_BYTES, what);
  bytes.keepMemory(count * ELEMENT_MEMORY_BYTES, what);
  const values: string[] = [];
  while (values.length < count) {
    values.push(bytes.takeReadyText(what) ?? (await bytes.takeText(HEADER_LIMIT_BYTES, what)));
  }
  return values;
}

function scalarType(type: number, path: string, what: string): ScalarType {
  const found = SCALAR_TYPES.get(type);
  if (found !== undefined) return found;
  throw corruptGguf(path, `${what}: its value is of type ${type}, which the GGUF format does not have`);
}

function readScalar(type: ScalarType, bytes: Buffer, at: number, path: string, what: string): number | boolean {
  const value = type.read(bytes, at);
  if (value !== null) return value;
  const shown = bytes.subarray(at, at + type.sizeBytes).toString('hex');
  const wanted = type.name === 'bool' ? '0 or 1' : 'a number that a double holds';
  throw corruptGguf(path, `${what}: the bytes ${shown} stand for no ${type.name} that is read, expected ${wanted}`);
}
