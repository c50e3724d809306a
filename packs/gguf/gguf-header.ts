import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { corruptGguf, shownGgufValue } from './gguf-errors.js';
import type { GgufHeaderBytes } from './gguf-header-bytes.js';
import {
  alignUp,
  placeTensors,
  takeTensorEntry,
  TENSOR_ENTRY_LEAST_BYTES,
  type GgufTensorEntry,
} from './gguf-tensors.js';
import type { GgufKeys, GgufTensor, GgufValue } from './gguf-types.js';
import { takeGgufValue } from './gguf-values.js';

const MAGIC = Buffer.from('GGUF');
/** Versions 2 and 3 differ only in the order of bytes that version 3 permits. */
const READ_VERSIONS: readonly number[] = [2, 3];
/** Most keys. Models have below 100. */
const KEYS_LIMIT = 65_536;
/** Bytes of a key with an empty name and a value of one byte. */
const KEY_LEAST_BYTES = 13;
/** Memory of the engine for a key's place in the map. */
const KEY_MEMORY_BYTES = 48;
const KEY_NAME_LIMIT_BYTES = 65_535;
/** Most tensors of a file and of a model. Files of early 2024 with each expert's tensors apart have below 100,000. */
export const TENSORS_LIMIT = 262_144;
const ALIGNMENT_KEY = 'general.alignment';
const USUAL_ALIGNMENT_BYTES = 32;
const ALIGNMENT_LIMIT_BYTES = 1 << 30;

/** All that stands before the tensors' data. */
export interface GgufHeader {
  keys: GgufKeys;
  /** In the order of the file. */
  tensors: ReadonlyMap<string, GgufTensor>;
  /** SHA-256 of the bytes before the data, hexadecimal. */
  digest: string;
}

/**
 * Reads and checks the header of a GGUF file: the keys, and the type, size and place of each tensor.
 * @throws MODEL_CORRUPT, MODEL_UNSUPPORTED, what the source of the bytes throws
 */
export async function parseGgufHeader(bytes: GgufHeaderBytes): Promise<GgufHeader> {
  await checkBegin(bytes);
  const tensorCount = await takeListCount(bytes, 'number of tensors', TENSORS_LIMIT, TENSOR_ENTRY_LEAST_BYTES);
  const keyCount = await takeListCount(bytes, 'number of keys', KEYS_LIMIT, KEY_LEAST_BYTES);
  const keys = await takeKeys(bytes, keyCount);
  const entries: GgufTensorEntry[] = [];
  while (entries.length < tensorCount) entries.push(await takeTensorEntry(bytes, entries.length));
  const { path, fileBytes } = bytes;
  const alignmentBytes = readAlignment(keys, path);
  const dataOffsetBytes = alignUp(bytes.offsetBytes, alignmentBytes);
  const tensors = placeTensors(entries, { dataOffsetBytes, alignmentBytes, fileBytes, path });
  // A file without tensors may end at its last key.
  const digest = await bytes.digestTo(Math.min(dataOffsetBytes, fileBytes), 'bytes before the data');
  return { keys, tensors, digest };
}

async function checkBegin(bytes: GgufHeaderBytes): Promise<void> {
  const { path, fileBytes } = bytes;
  const magic = await bytes.take(Math.min(MAGIC.length, fileBytes), 'first bytes');
  if (!MAGIC.subarray(0, magic.length).equals(magic) || fileBytes === 0) {
    const shown = fileBytes === 0 ? 'it is empty' : `it begins with the bytes ${magic.toString('hex')}`;
    throw corruptGguf(path, `no GGUF file: ${shown}, expected ${MAGIC.toString('hex')} ("GGUF")`);
  }
  const field = await bytes.take(4, 'version');
  const version = field.readUInt32LE(0);
  if (READ_VERSIONS.includes(version)) return;
  const read = `versions ${READ_VERSIONS.join(' and ')} in little-endian order are read`;
  const refuse = (problem: string, remedy: string): OdmoeError =>
    new OdmoeError('MODEL_UNSUPPORTED', `${path}: ${problem}; ${read}: ${remedy}`);
  const swapped = field.readUInt32BE(0);
  if (swapped === 1 || READ_VERSIONS.includes(swapped)) {
    throw refuse(
      `a GGUF file of version ${swapped} in big-endian order (its numbers stand with their first byte first, for machines such as s390x)`,
      'get the little-endian file of this model, or convert this one with gguf_convert_endian.py of llama.cpp',
    );
  }
  if (version === 1) {
    throw refuse('a GGUF file of version 1', 'get a newer file of this model, or convert it anew with llama.cpp');
  }
  if (version < 1 || version > 65_535) throw corruptGguf(path, `a GGUF file of version ${version}, which cannot be`);
  throw refuse(`a GGUF file of version ${version}`, 'get another file of this model');
}

async function takeListCount(
  bytes: GgufHeaderBytes,
  what: string,
  limit: number,
  elementLeastBytes: number,
): Promise<number> {
  const count = await bytes.takeCount(what);
  if (count > limit) throw corruptGguf(bytes.path, `${what}: ${count}, expected at most ${limit}`);
  bytes.requireLeft(count * elementLeastBytes, what);
  return count;
}

async function takeKeys(bytes: GgufHeaderBytes, count: number): Promise<GgufKeys> {
  const keys = new Map<string, GgufValue>();
  while (keys.size < count) {
    const key = await bytes.takeText(KEY_NAME_LIMIT_BYTES, `name of key ${keys.size}`);
    const what = `key ${shownGgufValue(key)}`;
    bytes.keepMemory(KEY_MEMORY_BYTES, what);
    if (keys.has(key)) throw corruptGguf(bytes.path, `${what}: stands in the file twice`);
    keys.set(key, await takeGgufValue(bytes, what));
  }
  return keys;
}

function readAlignment(keys: GgufKeys, path: string): number {
  const value = keys.get(ALIGNMENT_KEY) ?? USUAL_ALIGNMENT_BYTES;
  const isPower =
    typeof value === 'number' &&
    Number.isInteger(value) &&
    value >= 1 &&
    value <= ALIGNMENT_LIMIT_BYTES &&
    (value & (value - 1)) === 0;
  if (isPower) return value;
  const wanted = `a power of two up to ${ALIGNMENT_LIMIT_BYTES}`;
  throw corruptGguf(path, `key "${ALIGNMENT_KEY}": ${shownGgufValue(value)}, expected ${wanted}`);
}
