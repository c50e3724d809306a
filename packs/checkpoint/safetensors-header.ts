import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { printableJson, printableLine } from '../../shared/base/text/printable-text.js';

/** Bytes before the header: its length, little-endian. */
export const HEADER_LENGTH_BYTES = 8;
/** The safetensors format's bound on a header. */
export const SAFETENSORS_HEADER_LIMIT_BYTES = 100_000_000;

const BITS_PER_VALUE: Readonly<Record<string, number>> = {
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  BOOL: 8,
  U8: 8,
  I8: 8,
  F8_E5M2: 8,
  F8_E4M3: 8,
  F8_E8M0: 8,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  F64: 64,
  I64: 64,
  U64: 64,
  C64: 64,
};

export interface SafetensorsTensor {
  name: string;
  dtype: string;
  shape: readonly number[];
  /** Offset from the start of the file. */
  offsetBytes: number;
  sizeBytes: number;
}

const DOWNLOAD_AGAIN = 'the file is damaged: download or copy it again';

function corrupt(file: string, problem: string): OdmoeError {
  return new OdmoeError('MODEL_CORRUPT', `${file}: ${problem}; ${DOWNLOAD_AGAIN}`);
}

/** Checks the length field against the file. @throws MODEL_CORRUPT */
export function checkHeaderLength(headerBytes: bigint, fileBytes: number, file: string): number {
  if (headerBytes > BigInt(SAFETENSORS_HEADER_LIMIT_BYTES)) {
    throw corrupt(file, `header of ${headerBytes} bytes announced, expected at most ${SAFETENSORS_HEADER_LIMIT_BYTES}`);
  }
  const length = Number(headerBytes);
  if (length < 2) throw corrupt(file, `header of ${length} bytes announced, expected at least "{}"`);
  if (HEADER_LENGTH_BYTES + length > fileBytes) {
    throw corrupt(file, `header of ${length} bytes announced, but the file has ${fileBytes} bytes in all`);
  }
  return length;
}

/**
 * Parses and checks a safetensors header: every tensor's type, shape and place. The places must cover the data without hole or overlap, exactly
 * to the end of the file.
 * @param header the bytes after the length field; their number must be the length in that field
 * @throws MODEL_CORRUPT
 */
export function parseSafetensorsHeader(
  header: Uint8Array,
  fileBytes: number,
  file: string,
): Map<string, SafetensorsTensor> {
  const entries = parseEntries(header, file);
  const dataStart = HEADER_LENGTH_BYTES + header.length;
  const tensors = new Map<string, SafetensorsTensor>();
  for (const [name, entry] of entries) {
    if (name === '__metadata__') checkMetadata(entry, file);
    else tensors.set(name, parseTensor(name, entry, dataStart, file));
  }
  checkCoverage([...tensors.values()], dataStart, fileBytes, file);
  return tensors;
}

function parseEntries(header: Uint8Array, file: string): [string, unknown][] {
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(header);
    value = JSON.parse(text);
  } catch (thrown) {
    throw corrupt(file, `header is not JSON (${thrown instanceof Error ? thrown.message : String(thrown)})`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw corrupt(file, 'header is not a JSON object');
  }
  const duplicate = findDuplicateKey(text);
  if (duplicate !== null) throw corrupt(file, `header holds ${JSON.stringify(duplicate)} twice`);
  return Object.entries(value);
}

function checkMetadata(entry: unknown, file: string): void {
  const isText = typeof entry === 'object' && entry !== null && !Array.isArray(entry);
  if (!isText || Object.values(entry).some((value) => typeof value !== 'string')) {
    throw corrupt(file, '__metadata__ is not an object of strings');
  }
}

function isSize(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

function parseTensor(name: string, entry: unknown, dataStart: number, file: string): SafetensorsTensor {
  const fail = (problem: string): OdmoeError => corrupt(file, `tensor ${printableJson(name)}: ${problem}`);
  // Messages quote the name.
  if (printableLine(name) !== name) throw fail('its name has characters that control a terminal or end a line');
  if (typeof entry !== 'object' || entry === null) throw fail('entry is not an object');
  const { dtype, shape, data_offsets: offsets } = entry as Record<string, unknown>;
  const bits = typeof dtype === 'string' && Object.hasOwn(BITS_PER_VALUE, dtype) ? BITS_PER_VALUE[dtype] : undefined;
  if (typeof dtype !== 'string' || bits === undefined) {
    throw fail(`dtype ${JSON.stringify(dtype)} is unknown to the safetensors format`);
  }
  if (!Array.isArray(shape) || !shape.every(isSize))
    throw fail(`shape ${JSON.stringify(shape)} is not a list of sizes`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize)) {
    throw fail(`data_offsets ${JSON.stringify(offsets)} are not two offsets`);
  }
  const [begin, end] = offsets as [number, number];
  if (end < begin) throw fail(`data_offsets ${begin} to ${end} run backwards`);
  const expectedBits = shape.reduce((bitsSoFar, size) => bitsSoFar * BigInt(size), BigInt(bits));
  if (expectedBits !== BigInt(end - begin) * 8n) {
    const expected = expectedBits % 8n === 0n ? `${expectedBits / 8n} bytes` : `${expectedBits} bits`;
    throw fail(`${dtype} of shape [${shape.join(', ')}] takes ${expected}, but data_offsets hold ${end - begin} bytes`);
  }
  return { name, dtype, shape, offsetBytes: dataStart + begin, sizeBytes: end - begin };
}

function checkCoverage(tensors: SafetensorsTensor[], dataStart: number, fileBytes: number, file: string): void {
  const byPlace = tensors.sort((a, b) => a.offsetBytes - b.offsetBytes || a.sizeBytes - b.sizeBytes);
  let covered = dataStart;
  for (const tensor of byPlace) {
    const end = tensor.offsetBytes + tensor.sizeBytes;
    const fail = (problem: string): OdmoeError => corrupt(file, `tensor ${JSON.stringify(tensor.name)}: ${problem}`);
    if (end > fileBytes) throw fail(`ends at byte ${end}, but the file ends at byte ${fileBytes} (truncated?)`);
    if (tensor.offsetBytes < covered) {
      throw fail(`begins at byte ${tensor.offsetBytes}, within the tensor that ends at byte ${covered}`);
    }
    if (tensor.offsetBytes > covered) {
      throw fail(`begins at byte ${tensor.offsetBytes}, which leaves a hole after byte ${covered}`);
    }
    covered = end;
  }
  if (covered !== fileBytes) throw corrupt(file, `tensors end at byte ${covered}, but the file has ${fileBytes} bytes`);
}

/**
 * The first key that an object in the JSON text holds twice, or null. JSON.parse returns the last of two equal keys without an error, so a
 * header that names one tensor twice would hide the first. `text` must already have been parsed without error.
 */
export function findDuplicateKey(text: string): string | null {
  const open: (Set<string> | null)[] = [];
  let expectKey = false;
  for (let index = 0; index < text.length; index += 1) {
    switch (text.charAt(index)) {
      case '{':
        open.push(new Set());
        expectKey = true;
        break;
      case '[':
        open.push(null);
        expectKey = false;
        break;
      case '}':
      case ']':
        open.pop();
        expectKey = false;
        break;
      case ',':
        expectKey = open.at(-1) instanceof Set;
        break;
      case '"': {
        const end = stringEnd(text, index);
        const keys = open.at(-1);
        if (expectKey && keys instanceof Set) {
          const key = JSON.parse(text.slice(index, end + 1)) as string;
          if (keys.has(key)) return key;
          keys.add(key);
        }
        expectKey = false;
        index = end;
        break;
      }
      default:
        break;
    }
  }
  return null;
}

/** Index of the quote that closes the string opened at `start`. */
function stringEnd(text: string, start: number): number {
  let index = start + 1;
  while (text[index] !== '"') index += text[index] === '\\' ? 2 : 1;
  return index;
}
