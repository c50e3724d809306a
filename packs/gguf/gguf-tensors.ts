import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { corruptGguf, shownGgufValue } from './gguf-errors.js';
import type { GgufHeaderBytes } from './gguf-header-bytes.js';
import { GGUF_TYPES, type GgufTensor, type GgufType } from './gguf-types.js';
import { unreadTypeInWords } from './gguf-unread-types.js';

/** llama.cpp keeps a name with the zero byte behind it in 64 bytes. */
const NAME_LIMIT_BYTES = 63;
const DIMENSIONS_LIMIT = 4;
/** Bytes of an entry with an empty name and one dimension. */
export const TENSOR_ENTRY_LEAST_BYTES = 32;

/** An entry of the table of tensors. */
export interface GgufTensorEntry {
  name: string;
  type: GgufType;
  /** As in the file: the length of a row first. */
  dimensions: readonly number[];
  /** From the start of the data. */
  offsetBytes: number;
}

const TYPE_BY_NUMBER: ReadonlyMap<number, GgufType> = new Map(
  (Object.keys(GGUF_TYPES) as GgufType[]).map((type) => [GGUF_TYPES[type].number, type]),
);

/** Reads an entry of the table of tensors. @throws MODEL_CORRUPT, MODEL_UNSUPPORTED */
export async function takeTensorEntry(bytes: GgufHeaderBytes, index: number): Promise<GgufTensorEntry> {
  const name = await bytes.takeText(NAME_LIMIT_BYTES, `name of tensor ${index}`);
  const what = tensorInWords(name);
  const count = await bytes.takeUint32(what);
  if (count < 1 || count > DIMENSIONS_LIMIT) {
    throw corruptGguf(bytes.path, `${what}: ${count} dimensions, expected 1 to ${DIMENSIONS_LIMIT}`);
  }
  const dimensions: number[] = [];
  while (dimensions.length < count) {
    const size = await bytes.takeCount(what);
    if (size < 1) throw corruptGguf(bytes.path, `${what}: a dimension of 0, expected at least 1`);
    dimensions.push(size);
  }
  const type = readType(await bytes.takeUint32(what), bytes.path, what);
  return { name, type, dimensions, offsetBytes: await bytes.takeCount(what) };
}

function tensorInWords(name: string): string {
  return `tensor ${shownGgufValue(name)}`;
}

function readType(number: number, path: string, what: string): GgufType {
  const type = TYPE_BY_NUMBER.get(number);
  if (type !== undefined) return type;
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${path}: ${what} is of ${unreadTypeInWords(number)}, which is not read; get a file of this model whose tensors are of ` +
      Object.keys(GGUF_TYPES).join(', '),
  );
}

/** Size in bytes of a tensor, or null: more than any file has. The length of a row is a whole number of blocks. */
function tensorBytes({ type, dimensions }: GgufTensorEntry): number | null {
  const [row = 0, ...others] = dimensions;
  const { columns, bytes } = GGUF_TYPES[type];
  let size = (row / columns) * bytes;
  for (const dimension of others) size *= dimension;
  // A product that is safe has safe factors, so that no rounding came before.
  return Number.isSafeInteger(size) ? size : null;
}

export function alignUp(offsetBytes: number, alignmentBytes: number): number {
  return Math.ceil(offsetBytes / alignmentBytes) * alignmentBytes;
}

/** The places of a file's tensors. */
export interface GgufPlaces {
  dataOffsetBytes: number;
  alignmentBytes: number;
  fileBytes: number;
  path: string;
}

/**
 * Gives each tensor its place in the file. As llama.cpp demands, each begins at the first aligned byte after the one before it.
 * @throws MODEL_CORRUPT
 */
export function placeTensors(entries: readonly GgufTensorEntry[], places: GgufPlaces): Map<string, GgufTensor> {
  const { dataOffsetBytes, alignmentBytes, fileBytes, path } = places;
  const tensors = new Map<string, GgufTensor>();
  let end = 0;
  for (const entry of entries) {
    const fail = (problem: string): OdmoeError => corruptGguf(path, `${tensorInWords(entry.name)}: ${problem}`);
    const { columns } = GGUF_TYPES[entry.type];
    const [row = 0] = entry.dimensions;
    if (row % columns !== 0) {
      throw fail(`rows of ${row} values, expected whole blocks of ${columns} (${entry.type})`);
    }
    const expected = alignUp(end, alignmentBytes);
    if (entry.offsetBytes !== expected) {
      throw fail(
        `begins at byte ${entry.offsetBytes} of the data, expected ${expected}, the first multiple of ${alignmentBytes} after the tensor before it`,
      );
    }
    const sizeBytes = tensorBytes(entry);
    if (sizeBytes === null || !Number.isSafeInteger(dataOffsetBytes + expected + sizeBytes)) {
      throw fail(`dimensions [${entry.dimensions.join(', ')}] are more than any file holds`);
    }
    if (tensors.has(entry.name)) throw fail('stands in the file twice');
    end = expected + sizeBytes;
    const dimensions = [...entry.dimensions].reverse();
    tensors.set(entry.name, {
      name: entry.name,
      type: entry.type,
      dimensions,
      path,
      offsetBytes: dataOffsetBytes + expected,
      sizeBytes,
    });
  }
  const missing = entries.length === 0 ? 0 : dataOffsetBytes + end - fileBytes;
  if (missing > 0) {
    throw corruptGguf(
      path,
      `the file has ${fileBytes} bytes, but its tensors end at byte ${dataOffsetBytes + end}; ${missing} bytes are missing, the file was cut`,
    );
  }
  return tensors;
}
