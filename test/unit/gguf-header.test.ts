import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { GgufHeaderBytes, KEPT_FLOOR_BYTES } from '../../packs/gguf/gguf-header-bytes.js';
import { parseGgufHeader } from '../../packs/gguf/gguf-header.js';
import { GGUF_TYPES, type GgufScalar, type GgufType } from '../../packs/gguf/gguf-types.js';
import { unreadTypeInWords } from '../../packs/gguf/gguf-unread-types.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import {
  GgufMemory,
  ggufBytes,
  parseGgufBytes,
  textBytes,
  u32,
  u64,
  WRITTEN_TYPES,
  type WrittenFile,
  type WrittenKey,
  type WrittenTensor,
  type WrittenType,
} from './gguf-writer.js';
import { parseMutations } from './gguf-mutations.js';
import { noise } from './tiny-checkpoint.js';

const SCALARS: Readonly<Record<WrittenType, fc.Arbitrary<GgufScalar>>> = {
  u8: fc.integer({ min: 0, max: 255 }),
  i8: fc.integer({ min: -128, max: 127 }),
  u16: fc.integer({ min: 0, max: 65_535 }),
  i16: fc.integer({ min: -32_768, max: 32_767 }),
  u32: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
  i32: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
  f32: fc.float(),
  bool: fc.boolean(),
  text: fc.string({ unit: 'grapheme' }),
  u64: fc.maxSafeNat(),
  i64: fc.maxSafeInteger(),
  f64: fc.double(),
};

const keys: fc.Arbitrary<WrittenKey[]> = fc.uniqueArray(
  fc.constantFrom(...WRITTEN_TYPES).chain((type) =>
    fc.record({
      name: fc.string({ maxLength: 20 }).map((name) => `key.${name}`),
      type: fc.constant(type),
      value: fc.oneof(SCALARS[type], fc.array(SCALARS[type], { maxLength: 20 })),
    }),
  ),
  { selector: ({ name }) => name, maxLength: 8 },
);

function tensorOf(name: string, type: GgufType, blocks: number, others: readonly number[]): WrittenTensor {
  const { columns, bytes } = GGUF_TYPES[type];
  const count = others.reduce((product, size) => product * size, blocks);
  return { name, type, dimensions: [...others, blocks * columns], data: noise(count * bytes, blocks) };
}

const tensors: fc.Arbitrary<WrittenTensor[]> = fc.uniqueArray(
  fc
    .record({
      name: fc.string({ unit: 'grapheme-ascii', maxLength: 63 }),
      type: fc.constantFrom(...(Object.keys(GGUF_TYPES) as GgufType[])),
      blocks: fc.integer({ min: 1, max: 3 }),
      others: fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 3 }),
    })
    .map(({ name, type, blocks, others }) => tensorOf(name, type, blocks, others)),
  { selector: ({ name }) => name, maxLength: 6 },
);

const SMALL: WrittenFile = {
  keys: [
    { name: 'general.architecture', type: 'text', value: 'qwen3moe' },
    { name: 'qwen3moe.block_count', type: 'u32', value: 2 },
    { name: 'qwen3moe.rope.freq_base', type: 'f32', value: 1e6 },
    { name: 'qwen3moe.experts', type: 'i32', value: [2, 3] },
    { name: 'tokenizer.ggml.tokens', type: 'text', value: ['a', 'é', '<s>'] },
    { name: 'tokenizer.ggml.add_bos_token', type: 'bool', value: true },
    { name: 'general.size', type: 'u64', value: 123 },
  ],
  tensors: [
    tensorOf('token_embd.weight', 'Q8_0', 2, [3]),
    tensorOf('norm', 'F32', 5, []),
    tensorOf('x', 'Q4_0', 1, [2, 2]),
  ],
  alignment: 16,
};

async function refused(file: WrittenFile | Uint8Array, pattern: RegExp, code = 'MODEL_CORRUPT'): Promise<void> {
  const bytes = file instanceof Uint8Array ? file : ggufBytes(file);
  await assert.rejects(parseGgufBytes(bytes), (thrown) => {
    assert.ok(thrown instanceof OdmoeError, String(thrown));
    assert.match(thrown.message, /^test\.gguf: .*; /s);
    assert.match(thrown.message, pattern);
    assert.equal(thrown.code, code);
    return true;
  });
}

describe('the reader of a GGUF header', () => {
  it('gives the keys and the place of every tensor of any well-formed file', async () => {
    const alignments = fc.option(fc.constantFrom(1, 8, 32, 128), { nil: undefined });
    await fc.assert(
      fc.asyncProperty(keys, tensors, alignments, fc.constantFrom(2, 3), async (written, data, alignment, version) => {
        const file = ggufBytes({
          keys: written,
          tensors: data,
          version,
          ...(alignment === undefined ? {} : { alignment }),
        });
        const header = await parseGgufBytes(file);
        for (const { name, value } of written) assert.deepEqual(header.keys.get(name), value);
        assert.equal(header.keys.size, written.length + (alignment === undefined ? 0 : 1));
        assert.deepEqual(
          [...header.tensors.keys()],
          data.map(({ name }) => name),
        );
        for (const { name, type, dimensions, data: bytes } of data) {
          const tensor = header.tensors.get(name);
          assert.ok(tensor);
          assert.deepEqual([tensor.type, tensor.dimensions, tensor.path], [type, dimensions, 'test.gguf']);
          const stored = file.subarray(tensor.offsetBytes, tensor.offsetBytes + tensor.sizeBytes);
          assert.deepEqual(new Uint8Array(stored), bytes);
        }
      }),
    );
  });

  it('reads a header of several pieces once, and gives its digest', async () => {
    const texts = Array.from({ length: 120_000 }, (_, index) => `token ${index} ${'x'.repeat(index % 37)}`);
    const numbers = texts.map((_, index) => index / 2);
    const file = ggufBytes({
      keys: [
        { name: 'texts', type: 'text', value: texts },
        { name: 'long', type: 'text', value: 'y'.repeat(3_000_000) },
        { name: 'numbers', type: 'f64', value: numbers },
      ],
      tensors: [tensorOf('a', 'F32', 7, [])],
    });
    const source = new GgufMemory(file);
    const header = await parseGgufHeader(new GgufHeaderBytes(source, 'test.gguf'));
    assert.deepEqual(header.keys.get('texts'), texts);
    assert.deepEqual(header.keys.get('numbers'), numbers);
    assert.equal(String(header.keys.get('long')).length, 3_000_000);
    const dataOffset = header.tensors.get('a')?.offsetBytes ?? 0;
    assert.equal(header.digest, createHash('sha256').update(file.subarray(0, dataOffset)).digest('hex'));
    assert.ok(source.readBytes <= file.length && source.readCalls < 12);
  });

  it('keeps NaN, infinities and whole numbers of 64 bits that a double holds', async () => {
    const value = [2 ** 60, 0];
    const { keys: read } = await parseGgufBytes(
      ggufBytes({
        keys: [
          { name: 'a', type: 'f32', value: [NaN, Infinity] },
          { name: 'b', type: 'u64', value },
        ],
      }),
    );
    assert.deepEqual(
      [...read],
      [
        ['a', [NaN, Infinity]],
        ['b', value],
      ],
    );
  });

  it('reads the character that stands for wrong bytes, and a byte order mark, as they are', async () => {
    const value = ['\ufffd', '\ufeffa'];
    const { keys: read } = await parseGgufBytes(ggufBytes({ keys: [{ name: 'a', type: 'text', value }] }));
    assert.deepEqual(read.get('a'), value);
  });

  it('reads a file without tensors that ends at its last key', async () => {
    const file = ggufBytes({ keys: [{ name: 'a', type: 'u8', value: 1 }] });
    const end = 24 + textBytes('a').length + 5;
    const header = await parseGgufBytes(file.subarray(0, end));
    assert.deepEqual([...header.keys], [['a', 1]]);
  });

  it('either reads or refuses a small file with any byte changed or any end cut off', async () => {
    const file = ggufBytes(SMALL);
    assert.ok(file.length < 2048);
    let cuts = 0;
    const attempt = async (bytes: Buffer): Promise<boolean> => {
      try {
        await parseGgufBytes(bytes);
        return true;
      } catch (thrown) {
        assert.ok(thrown instanceof OdmoeError && /^MODEL_(CORRUPT|UNSUPPORTED)$/.test(thrown.code), String(thrown));
        assert.ok(thrown.message.startsWith('test.gguf: ') && thrown.message.length < 1000, thrown.message);
        return false;
      }
    };
    for (let at = 0; at < file.length; at += 1) {
      if (await attempt(file.subarray(0, at))) cuts += 1;
      for (const mask of [0x01, 0x80, 0xff]) {
        const changed = Buffer.from(file);
        changed[at] = (changed[at] ?? 0) ^ mask;
        await attempt(changed);
      }
    }
    // Behind the last tensor of 72 bytes are 8 bytes of padding; a file without them is whole.
    assert.equal(cuts, 8);
  });
});

describe('a mutated GGUF header', () => {
  it('is read once, in bounded memory, and either parsed or refused in our words', async () => {
    assert.ok((await parseMutations(500, 1)) > 0);
  });
});

describe('a GGUF header is refused', () => {
  const tensor = tensorOf('a', 'F32', 5, []);

  it('if it is no GGUF file, or of a form that is not read', async () => {
    await refused(Buffer.from(''), /no GGUF file: it is empty/);
    await refused(Buffer.from('PK\u0003\u0004 zip'), /no GGUF file: it begins with the bytes 504b0304/);
    await refused(Buffer.from('GG'), /cut/);
    await refused({ version: 1 }, /version 1;/, 'MODEL_UNSUPPORTED');
    await refused({ version: 4 }, /version 4; versions 2 and 3/, 'MODEL_UNSUPPORTED');
    await refused({ version: 50_331_648 }, /version 3 in big-endian/, 'MODEL_UNSUPPORTED');
    await refused({ version: 0 }, /version 0, which cannot be/);
  });

  it('if the file was cut, with the number of bytes that are missing', async () => {
    const file = ggufBytes({ tensors: [tensor, tensorOf('b', 'F32', 8, [100])] });
    await refused(file.subarray(0, file.length - 1234), /1234 bytes are missing, the file was cut/);
    await refused(file.subarray(0, 50), /ends within its header, at least \d+ bytes are missing/);
  });

  it('if a count or length is more than the file holds', async () => {
    const begin = Buffer.concat([Buffer.from('GGUF'), u32(3)]);
    await refused(
      Buffer.concat([begin, u64(2n ** 64n - 1n), u64(0)]),
      /number of tensors: the number 18446744073709551615/,
    );
    await refused(Buffer.concat([begin, u64(1_000_000), u64(0)]), /number of tensors: 1000000, expected at most/);
    await refused(Buffer.concat([begin, u64(0), u64(1000)]), /number of keys: .*missing/);
    await refused(Buffer.concat([begin, u64(0), u64(1), u64(66_000)]), /missing|at most 65535/);
    const list = (type: number, count: number): Buffer =>
      Buffer.concat([begin, u64(0), u64(1), textBytes('a'), u32(9), u32(type), u64(count), Buffer.alloc(100)]);
    for (const type of [0, 4, 8, 12]) {
      await refused(list(type, 1000), /key "a": the file .* ends within its header/);
      await refused(list(type, 2 ** 40), /key "a": \d+ bytes announced/);
    }
  });

  it('if its keys contradict the format', async () => {
    const key: WrittenKey = { name: 'a', type: 'u8', value: 1 };
    await refused({ keys: [key, key] }, /key "a": stands in the file twice/);
    await refused(
      {
        keys: [
          { name: 'a', type: 'u64', value: 2 ** 53 },
          { ...key, name: '' },
          { ...key, name: '' },
        ],
      },
      /key "": /,
    );
    const raw = (bytes: Buffer): Buffer =>
      Buffer.concat([Buffer.from('GGUF'), u32(3), u64(0), u64(1), textBytes('a'), bytes, Buffer.alloc(40)]);
    await refused(raw(Buffer.concat([u32(10), u64(2n ** 64n - 1n)])), /key "a": the bytes f{16} stand for no u64/);
    await refused(raw(Buffer.concat([u32(7), Buffer.from([2])])), /key "a": the bytes 02 stand for no bool/);
    await refused(raw(u32(13)), /key "a": its value is of type 13/);
    await refused(raw(Buffer.concat([u32(9), u32(9), u64(0)])), /list of lists/, 'MODEL_UNSUPPORTED');
    const wrongText = Buffer.concat([u64(1), Buffer.from([0xff])]);
    await refused(raw(Buffer.concat([u32(8), wrongText])), /key "a": a text that is not UTF-8/);
    await refused(raw(Buffer.concat([u32(9), u32(8), u64(1), wrongText])), /key "a": a text that is not UTF-8/);
    for (const [type, value] of [
      ['u32', 0],
      ['u32', 48],
      ['f32', 0.5],
      ['text', '32'],
    ] as const) {
      await refused(
        { keys: [{ name: 'general.alignment', type, value }] },
        /"general.alignment": \S+, expected a power of two/,
      );
    }
  });

  it('if its keys would take more memory than twice the file', async () => {
    const value = Array.from({ length: 20_000 }, () => 1);
    await refused({ keys: [{ name: 'a', type: 'u8', value }] }, /key "a": the keys take more than \d+ bytes/);
    const fewer = ggufBytes({ keys: [{ name: 'a', type: 'u8', value: value.slice(0, KEPT_FLOOR_BYTES / 8 - 10) }] });
    await parseGgufBytes(fewer);
  });

  it('if its tensors contradict the format or each other', async () => {
    await refused({ tensors: [tensor, tensor] }, /tensor "a": stands in the file twice/);
    await refused(
      { tensors: [{ ...tensor, name: 'n'.repeat(64) }] },
      /name of tensor 0: a text of 64 bytes, expected at most 63/,
    );
    await refused({ tensors: [{ ...tensor, dimensions: [] }] }, /"a": 0 dimensions/);
    await refused({ tensors: [{ ...tensor, dimensions: [1, 1, 1, 1, 5] }] }, /"a": 5 dimensions/);
    await refused({ tensors: [{ ...tensor, dimensions: [0] }] }, /"a": a dimension of 0/);
    await refused({ tensors: [{ ...tensor, dimensions: [2 ** 40, 2 ** 40] }] }, /"a": .*more than any file/);
    await refused(
      { tensors: [{ ...tensorOf('a', 'Q4_K', 1, []), dimensions: [2, 128] }] },
      /rows of 128 values, expected whole blocks of 256/,
    );
    for (const offsetBytes of [0, 20, 64, 4096]) {
      await refused(
        { tensors: [tensor, { ...tensor, name: 'b', offsetBytes }] },
        /"b": begins at byte \d+ of the data, expected 32/,
      );
    }
  });

  it('if a tensor is of a type that is not read, by its name', async () => {
    const names: [number, RegExp][] = [
      [16, /tensor "a" is of type 16 \(IQ2_XXS\)/],
      [34, /type 34 \(TQ1_0\)/],
      [9, /type 9 \(Q8_1\)/],
      [139, /type 139 \(IQ4_K of ik_llama\.cpp\)/],
      [500, /type 500, an unknown one/],
    ];
    for (const [type, pattern] of names)
      await refused({ tensors: [{ ...tensor, type }] }, pattern, 'MODEL_UNSUPPORTED');
    await refused(
      { tensors: [{ ...tensor, type: 16 }] },
      /get a file of this model whose tensors are of F32, .*NVFP4/,
      'MODEL_UNSUPPORTED',
    );
  });

  it('if a tensor is of any type of llama.cpp that is not read: each has a name in the words', () => {
    const read = new Set<number>(Object.values(GGUF_TYPES).map(({ number }) => number));
    for (let number = 0; number <= 42; number += 1)
      assert.equal(/\(.+\)$/.test(unreadTypeInWords(number)), !read.has(number));
  });
});
