import assert from 'node:assert/strict';
import fc from 'fast-check';
import { decodeChunk, encodeChunk, measureCodec, splitPlanes } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { CHUNK_CODECS, type ChunkCodec } from '../../shared/model/tensor-source.js';
import { GaussianFiller, RandomBits } from '../../bench/synth/gaussian-values.js';
import { type OwnCodec, referenceDecodeChunk } from './reference-chunks.js';
import { refusal } from './tiny-pack.js';

const OWN_CODECS: readonly OwnCodec[] = ['fixed4', 'huffman', 'packed3', 'e4m3'];

function levelOf(codec: ChunkCodec): number {
  return codec === 'zstd' || codec === 'lz4hc' ? 3 : 0;
}

/** Planes whose values are few or many, even or skewed, and blocks that do not divide them. */
const planes = fc.record({
  bytes: fc.oneof(
    fc.uint8Array({ minLength: 1, maxLength: 2000 }),
    fc.uint8Array({ minLength: 1, maxLength: 5000, max: 20 }),
    fc.array(fc.nat({ max: 2 ** 30 - 1 }), { minLength: 1, maxLength: 5000 }).map(skewed),
  ),
  blockBytes: fc.integer({ min: 1, max: 6000 }),
});

/** Value v occurs half as often as v - 1, down from 127. Exponents of weights have such a distribution. */
function skewed(drawn: number[]): Uint8Array {
  return Uint8Array.from(drawn, (number) => 127 - Math.floor(30 - Math.log2(number + 1)));
}

function fitting(codec: ChunkCodec, bytes: Uint8Array): Uint8Array {
  return codec === 'packed3' ? bytes.map((byte) => byte & 7) : bytes;
}

async function encode(codec: ChunkCodec, bytes: Uint8Array, blockBytes: number): Promise<Uint8Array> {
  return encodeChunk(codec, levelOf(codec), bytes, blockBytes);
}

function assertSameBytes(actual: Uint8Array, expected: Uint8Array): void {
  assert.equal(Buffer.compare(actual, expected), 0);
}

describe('chunk codecs:', () => {
  for (const codec of CHUNK_CODECS) {
    it(`${codec} gives back every plane`, async () => {
      const property = fc.asyncProperty(planes, async ({ bytes, blockBytes }) => {
        const plain = fitting(codec, bytes);
        const stored = await encode(codec, plain, blockBytes);
        assertSameBytes(await decodeChunk(codec, stored, plain.length, blockBytes), plain);
      });
      await fc.assert(property);
    });

    it(`${codec} takes damage for wrong bytes or says PACK_CORRUPT`, async () => {
      const damages = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 5 });
      const property = fc.asyncProperty(planes, damages, fc.nat(), async ({ bytes, blockBytes }, places, cut) => {
        const plain = fitting(codec, bytes);
        const stored = Uint8Array.from(await encode(codec, plain, blockBytes));
        for (const [place, bits] of places) {
          const at = place % stored.length;
          stored[at] = (stored[at] ?? 0) ^ bits;
        }
        const damaged = cut % 3 === 0 ? stored.subarray(0, cut % stored.length) : stored;
        const outcome = await decodeChunk(codec, damaged, plain.length, blockBytes).catch((error: unknown) => error);
        if (outcome instanceof Uint8Array) assert.equal(outcome.length, plain.length);
        else assert.ok(outcome instanceof OdmoeError && outcome.code === 'PACK_CORRUPT', String(outcome));
      });
      await fc.assert(property);
    });
  }

  for (const codec of OWN_CODECS) {
    it(`${codec} stores what the pack format describes`, async () => {
      const property = fc.asyncProperty(planes, async ({ bytes, blockBytes }) => {
        const plain = fitting(codec, bytes);
        assertSameBytes(referenceDecodeChunk(codec, await encode(codec, plain, blockBytes), plain.length), plain);
      });
      await fc.assert(property);
    });

    it(`${codec} stores blocks of several windows and groups as described`, async () => {
      const random = new RandomBits(1, 1);
      const plain = fitting(codec, skewed(Array.from({ length: 150_001 }, () => random.next() >>> 2)));
      assertSameBytes(referenceDecodeChunk(codec, await encode(codec, plain, 140_000), plain.length), plain);
    });
  }

  it('the codecs keep all 65,536 patterns of BF16', async () => {
    const patterns = new Uint8Array(Uint16Array.from({ length: 65536 }, (_, index) => index).buffer);
    const [exponents] = splitPlanes(patterns, 'bf16-e8-sm8');
    assert.ok(exponents !== undefined);
    for (const codec of CHUNK_CODECS.filter((name) => name !== 'packed3')) {
      assertSameBytes(await decodeChunk(codec, await encode(codec, exponents, 5000), 65536, 5000), exponents);
    }
  });

  it('the codecs work on several chunks at a time', async () => {
    const chunks = Array.from({ length: 40 }, (_, index) =>
      skewed(Array.from({ length: 3000 }, (_, i) => (i * index) % 999)),
    );
    const stored = await Promise.all(chunks.map((chunk) => encode('huffman', chunk, 1000)));
    const plain = await Promise.all(stored.map((bytes) => decodeChunk('huffman', bytes, 3000, 1000)));
    plain.forEach((bytes, index) => assertSameBytes(bytes, chunks[index] ?? new Uint8Array(0)));
  });

  it('the codecs refuse invalid input', async () => {
    const bytes = Uint8Array.of(1, 2, 8);
    await assert.rejects(encodeChunk('packed3', 0, bytes, 3), refusal('INTERNAL', /3 bits/));
    await assert.rejects(encodeChunk('zstd', 0, bytes, 3), refusal('INTERNAL', /levels from 1 to 22/));
    await assert.rejects(encodeChunk('lz4hc', 13, bytes, 3), refusal('INTERNAL', /levels from 1 to 12/));
    await assert.rejects(encodeChunk('fixed4', 0, new Uint8Array(0), 3), refusal('INTERNAL', /0 bytes/));
    await assert.rejects(encodeChunk('fixed4', 0, bytes, 0), refusal('INTERNAL', /blockBytes/));
    await assert.rejects(encodeChunk('gzip' as ChunkCodec, 0, bytes, 3), refusal('INTERNAL', /codec is gzip/));
    await assert.rejects(decodeChunk('raw', bytes, 4, 3), refusal('PACK_CORRUPT', /3 uncompressed bytes/));
    await assert.rejects(decodeChunk('fixed4', bytes, 3, 3), refusal('PACK_CORRUPT', /ends within its header/));
  });

  it('the codecs are measured on a tensor', async () => {
    const values = new Uint8Array(1 << 20);
    new GaussianFiller('BF16', 0.02).fill(values, new RandomBits(1, 1));
    for (const [codec, ratio] of [
      ['raw', 1],
      ['zstd', 0.67],
      ['fixed4', 0.752],
      ['huffman', 0.671],
    ] as const) {
      const speed = await measureCodec(codec, codec === 'zstd' ? 1 : 0, values, 512, 1);
      assert.ok(speed.ratio <= ratio, `${codec}: ${speed.ratio}`);
      assert.ok(speed.ratio > 0.65);
      for (const rate of [speed.encodeBytesPerS, speed.decodeBytesPerS, speed.memcpyBytesPerS]) assert.ok(rate > 0);
    }
    await assert.rejects(measureCodec('zstd', 1, values, 1000, 1), refusal('INTERNAL', /not rows of 1000/));
  });
});
