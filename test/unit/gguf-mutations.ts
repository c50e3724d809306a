/** Damaged GGUF headers, from a seed. */
import assert from 'node:assert/strict';
import { GgufHeaderBytes, KEPT_FLOOR_BYTES } from '../../packs/gguf/gguf-header-bytes.js';
import { parseGgufHeader } from '../../packs/gguf/gguf-header.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { GgufMemory, ggufBytes, ggufParts, u32, u64, WRITTEN_TYPES, type WrittenKey } from './gguf-writer.js';
import { noise } from './tiny-checkpoint.js';

/** Numbers that lie, as 64 and as 32 bits. */
const LIES = [
  0n,
  1n,
  2n,
  8n,
  9n,
  12n,
  63n,
  64n,
  255n,
  1000n,
  65_536n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 53n,
  2n ** 64n - 1n,
];

const KEYS: WrittenKey[] = WRITTEN_TYPES.flatMap((type): WrittenKey[] => [
  { name: `one.${type}`, type, value: 1 },
  { name: `list.${type}`, type, value: Array.from({ length: 20 }, (_, index) => index % 2) },
]);
const TENSORS = [
  { name: 'a', type: 'Q4_K', dimensions: [2, 256], data: noise(288, 1) },
  { name: 'b', type: 'F32', dimensions: [3, 2, 5], data: noise(120, 2) },
  { name: 'c', type: 'MXFP4', dimensions: [32], data: noise(17, 3) },
] as const;

const FILES = [
  ggufBytes({ keys: KEYS, tensors: TENSORS, alignment: 64 }),
  ggufBytes({ keys: KEYS.slice(0, 5), tensors: TENSORS, version: 2 }),
  ...ggufParts(KEYS.slice(4, 9), [[], TENSORS]),
  // Lists of small elements take eight times their bytes of the file; these are more than the floor.
  ggufBytes({ keys: [{ name: 'list', type: 'u8', value: Array<number>(9000).fill(1) }], tensors: TENSORS }),
  ggufBytes({ keys: [{ name: 'texts', type: 'text', value: Array<string>(9000).fill('ab') }], tensors: TENSORS }),
];

function mutated(file: Buffer, random: SeededRandom): Buffer {
  const at = random.int(file.length);
  switch (random.int(7)) {
    case 0:
      return file.subarray(0, at);
    case 1:
      return Buffer.concat([file.subarray(0, at), noise(1 + random.int(40), random.int(1000)), file.subarray(at)]);
    case 2:
      return Buffer.concat([file.subarray(0, at), file.subarray(at + 1 + random.int(40))]);
    case 3: {
      const from = random.int(file.length);
      return Buffer.concat([file.subarray(0, at), file.subarray(from, from + random.int(100)), file.subarray(at)]);
    }
    default:
      return overwritten(file, random.chance(0.5) ? at : random.int(Math.min(file.length, 400)), random);
  }
}

function overwritten(file: Buffer, at: number, random: SeededRandom): Buffer {
  const lie = random.pick(LIES);
  const bytes = random.pick([u64(lie), u32(Number(lie & 0xffff_ffffn)), Buffer.from([random.int(256)])]);
  const copy = Buffer.from(file);
  bytes.copy(copy, at);
  return copy;
}

/**
 * Parses mutated headers. Each must be read once, in bounded memory, and either give tensors within the file or be refused in our words.
 * @returns the count of those that were parsed
 */
export async function parseMutations(count: number, seed: number): Promise<number> {
  const random = new SeededRandom(seed);
  let parsed = 0;
  for (let turn = 0; turn < count; turn += 1) {
    let file = random.pick(FILES);
    for (let times = random.int(4); times >= 0; times -= 1) if (file.length > 0) file = mutated(file, random);
    const source = new GgufMemory(file);
    const bytes = new GgufHeaderBytes(source, 'test.gguf');
    try {
      const { tensors } = await parseGgufHeader(bytes);
      parsed += 1;
      for (const { offsetBytes, sizeBytes } of tensors.values()) assert.ok(offsetBytes + sizeBytes <= file.length);
    } catch (thrown) {
      const ours = thrown instanceof OdmoeError && /^MODEL_(CORRUPT|UNSUPPORTED)$/.test(thrown.code);
      assert.ok(ours, `turn ${turn}: ${thrown instanceof Error ? thrown.stack : String(thrown)}`);
    }
    assert.ok(bytes.keptBytes <= Math.max(2 * file.length, KEPT_FLOOR_BYTES), `turn ${turn}`);
    // Each loop of the parser takes bytes, so that bytes read once bound its steps.
    assert.ok(source.readBytes <= file.length && source.readCalls <= 8, `turn ${turn}`);
  }
  return parsed;
}
