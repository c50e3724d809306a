import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { findDuplicateKey, parseSafetensorsHeader } from '../../packs/checkpoint/safetensors-header.js';
import { readSafetensorsFile } from '../../packs/checkpoint/safetensors-file.js';
import { noise, safetensorsBytes, withHeader, withTemporaryDirectory, type TinyTensor } from './tiny-checkpoint.js';

interface HeaderEntry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

const DTYPE_BYTES: Readonly<Record<string, number>> = { BF16: 2, F16: 2, F32: 4, I64: 8, U8: 1, F8_E4M3: 1 };

const arbitraryTensors: fc.Arbitrary<TinyTensor[]> = fc
  .uniqueArray(
    fc.record({
      name: fc.string({ minLength: 1, maxLength: 12 }).filter((name) => name !== '__metadata__'),
      dtype: fc.constantFrom(...Object.keys(DTYPE_BYTES)),
      shape: fc.array(fc.nat({ max: 5 }), { maxLength: 3 }),
    }),
    { selector: ({ name }) => name, maxLength: 6 },
  )
  .map((entries) =>
    entries.map(({ name, dtype, shape }, seed) => {
      const sizeBytes = shape.reduce((product, size) => product * size, DTYPE_BYTES[dtype] ?? 1);
      return { name, dtype, shape, data: noise(sizeBytes, seed) };
    }),
  );

/** Splits a file's bytes into what parseSafetensorsHeader takes. */
function parse(file: Buffer): ReturnType<typeof parseSafetensorsHeader> {
  const length = Number(file.readBigUInt64LE(0));
  return parseSafetensorsHeader(file.subarray(8, 8 + length), file.length, 'test.safetensors');
}

function fileWith(header: unknown, dataBytes: number): Buffer {
  const text = typeof header === 'string' ? header : JSON.stringify(header);
  return withHeader(Buffer.from(text), [new Uint8Array(dataBytes)]);
}

const corrupt =
  (pattern: RegExp) =>
  (thrown: unknown): boolean =>
    thrown instanceof OdmoeError && thrown.code === 'MODEL_CORRUPT' && pattern.test(thrown.message);

describe('the reader of a safetensors header', () => {
  it('gives the place of every tensor of any well-formed file', () => {
    fc.assert(
      fc.property(arbitraryTensors, (tensors) => {
        const file = safetensorsBytes(tensors);
        const found = parse(file);
        assert.equal(found.size, tensors.length);
        for (const { name, dtype, shape, data } of tensors) {
          const tensor = found.get(name);
          assert.ok(tensor);
          assert.equal(tensor.dtype, dtype);
          assert.deepEqual(tensor.shape, shape);
          const bytes = file.subarray(tensor.offsetBytes, tensor.offsetBytes + tensor.sizeBytes);
          assert.deepEqual(new Uint8Array(bytes), data);
        }
      }),
    );
  });

  it('refuses a file with any number of bytes cut off or added', () => {
    fc.assert(
      fc.property(arbitraryTensors, fc.integer({ min: -40, max: 40 }), (tensors, change) => {
        const file = safetensorsBytes(tensors);
        const headerEnd = 8 + Number(file.readBigUInt64LE(0));
        const size = file.length + change;
        if (change === 0 || size < headerEnd) return;
        assert.throws(() => parseSafetensorsHeader(file.subarray(8, headerEnd), size, 'x'), corrupt(/byte/));
      }),
    );
  });

  it('never accepts changed offsets, sizes or types unless the tensors still tile the file', () => {
    const change = fc.record({
      pick: fc.nat(),
      field: fc.constantFrom('begin', 'end', 'dtype', 'shape'),
      by: fc.integer({ min: -9, max: 9 }),
    });
    fc.assert(
      fc.property(arbitraryTensors, change, (tensors, { pick, field, by }) => {
        const file = safetensorsBytes(tensors);
        const headerEnd = 8 + Number(file.readBigUInt64LE(0));
        const header = JSON.parse(file.toString('utf8', 8, headerEnd)) as Record<string, HeaderEntry>;
        const names = tensors.map(({ name }) => name);
        const entry = header[names[pick % Math.max(1, names.length)] ?? ''];
        if (entry === undefined) return;
        if (field === 'begin') entry.data_offsets[0] += by;
        if (field === 'end') entry.data_offsets[1] += by;
        if (field === 'dtype') entry.dtype = by > 0 ? 'F64' : 'Q4';
        if (field === 'shape') entry.shape.push(Math.abs(by));
        const bytes = Buffer.from(JSON.stringify(header));
        const size = 8 + bytes.length + (file.length - headerEnd);
        let found: ReturnType<typeof parseSafetensorsHeader>;
        try {
          found = parseSafetensorsHeader(bytes, size, 'x');
        } catch (thrown) {
          assert.ok(corrupt(/x: /)(thrown), String(thrown));
          return;
        }
        let covered = 8 + bytes.length;
        for (const tensor of [...found.values()].sort(
          (a, b) => a.offsetBytes - b.offsetBytes || a.sizeBytes - b.sizeBytes,
        )) {
          assert.equal(tensor.offsetBytes, covered);
          covered += tensor.sizeBytes;
        }
        assert.equal(covered, size);
      }),
    );
  });

  it('throws nothing but MODEL_CORRUPT on arbitrary bytes', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.uint8Array({ maxLength: 60 }),
          fc.json().map((text) => Buffer.from(text)),
        ),
        (bytes) => {
          try {
            parseSafetensorsHeader(bytes, 8 + bytes.length, 'x');
          } catch (thrown) {
            assert.ok(corrupt(/x: /)(thrown), String(thrown));
          }
        },
      ),
    );
  });

  const lies: [string, unknown, number, RegExp][] = [
    ['not JSON', '{"a":', 0, /not JSON/],
    ['a list', [], 0, /not a JSON object/],
    ['a tensor that is no object', { a: 1 }, 0, /"a": entry is not an object/],
    ['an unknown dtype', { a: { dtype: 'BF17', shape: [2], data_offsets: [0, 4] } }, 4, /"BF17" is unknown/],
    [
      'a dtype named like an object method',
      { a: { dtype: 'toString', shape: [], data_offsets: [0, 0] } },
      0,
      /unknown/,
    ],
    ['a negative size', { a: { dtype: 'U8', shape: [-1], data_offsets: [0, 1] } }, 1, /not a list of sizes/],
    ['a fractional size', { a: { dtype: 'U8', shape: [1.5], data_offsets: [0, 1] } }, 1, /not a list of sizes/],
    ['three offsets', { a: { dtype: 'U8', shape: [1], data_offsets: [0, 1, 2] } }, 1, /not two offsets/],
    ['offsets backwards', { a: { dtype: 'U8', shape: [1], data_offsets: [1, 0] } }, 1, /backwards/],
    [
      'a shape that overflows',
      { a: { dtype: 'F64', shape: [2 ** 40, 2 ** 40], data_offsets: [0, 0] } },
      0,
      /takes \d{25} bytes/,
    ],
    [
      'size against shape',
      { a: { dtype: 'BF16', shape: [2, 3], data_offsets: [0, 10] } },
      10,
      /takes 12 bytes.*hold 10/,
    ],
    ['half a byte', { a: { dtype: 'F4', shape: [3], data_offsets: [0, 1] } }, 1, /takes 12 bits/],
    ['a hole', { a: { dtype: 'U8', shape: [1], data_offsets: [1, 2] } }, 2, /hole/],
    [
      'an overlap',
      { a: { dtype: 'U8', shape: [2], data_offsets: [0, 2] }, b: { dtype: 'U8', shape: [2], data_offsets: [1, 3] } },
      3,
      /"b": begins .* within/,
    ],
    ['an end beyond the file', { a: { dtype: 'U8', shape: [9], data_offsets: [0, 9] } }, 8, /truncated/],
    ['bytes after the last tensor', { a: { dtype: 'U8', shape: [1], data_offsets: [0, 1] } }, 2, /tensors end at/],
    ['metadata of numbers', { __metadata__: { format: 1 } }, 0, /__metadata__/],
    [
      'a tensor twice',
      '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
      1,
      /holds "a" twice/,
    ],
  ];
  for (const [name, header, dataBytes, message] of lies) {
    it(`the reader of a safetensors header refuses ${name}`, () =>
      assert.throws(() => parse(fileWith(header, dataBytes)), corrupt(message)));
  }

  it('refuses a header that is not UTF-8', () => {
    const header = Buffer.concat([Buffer.from('{"'), Buffer.from([0xff]), Buffer.from('":{}}')]);
    assert.throws(() => parse(withHeader(header, [])), corrupt(/not JSON/));
  });

  it('takes a header padded with spaces, and a tensor named __proto__', () => {
    const entry = { dtype: 'U8', shape: [1], data_offsets: [0, 1] };
    const found = parse(fileWith(`{"__proto__":${JSON.stringify(entry)}}     `, 1));
    assert.equal(found.get('__proto__')?.sizeBytes, 1);
  });
});

describe('the search for duplicate keys in JSON', () => {
  it('finds a key exactly when an object holds it twice', () => {
    fc.assert(
      fc.property(fc.json(), fc.boolean(), (text, repeat) => {
        assert.equal(findDuplicateKey(text), null);
        if (repeat) assert.equal(findDuplicateKey(`[{"k":${text},"x":[{"k":1}],"k":${text}}]`), 'k');
        assert.equal(findDuplicateKey(`[{"k":${text}},{"k":"k","\\"k":"{\\"k\\":1}"}]`), null);
      }),
    );
  });
});

describe('a safetensors file', () => {
  const read = async (bytes: Uint8Array): Promise<unknown> => {
    let found: unknown;
    await withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'm.safetensors');
      await writeFile(path, bytes);
      found = await readSafetensorsFile(path).catch((thrown: unknown) => thrown);
    });
    return found;
  };

  it('is refused when it is cut at any length', async () => {
    const whole = safetensorsBytes([{ name: 'a', dtype: 'BF16', shape: [4], data: noise(8, 1) }]);
    for (let size = 0; size < whole.length; size += 1) {
      assert.ok(corrupt(/m\.safetensors: /)(await read(whole.subarray(0, size))), `accepted at ${size} bytes`);
    }
    assert.ok(!((await read(whole)) instanceof Error));
  });

  it('is refused when its header is declared longer than the file or than any header may be', async () => {
    const announce = (length: bigint): Buffer => {
      const bytes = Buffer.alloc(64);
      bytes.writeBigUInt64LE(length);
      return bytes;
    };
    assert.ok(corrupt(/announced, but the file has 64/)(await read(announce(100n))));
    assert.ok(corrupt(/at most 100000000/)(await read(announce(2n ** 64n - 1n))));
    assert.ok(corrupt(/at least/)(await read(announce(0n))));
  });
});
