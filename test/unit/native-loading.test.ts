import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { FROM_STORAGE, PLAIN_LOADER, crc32c, splitPlanes, type Device, type ExpertSlots } from '../../native/index.js';
import { plainGlu } from '../../engine/emulation/plain-shape.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { ChunkLocation, ExpertSource, Split, TensorSource } from '../../shared/model/tensor-source.js';
import { FIXTURE_SIZES, bits, bytesOf, expertName, expertSource, openTestDevice } from './native-test-model.js';

const { hiddenSize, intermediateSize } = FIXTURE_SIZES;
const HIDDEN = new Uint8Array(Float32Array.from({ length: hiddenSize }, (_, i) => Math.sin(i + 1)).buffer);

/** One bit at a time, straight from the polynomial. */
function slowCrc32c(bytes: Uint8Array): number {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc >>> 0;
}

/** Planes put together again by the definition in docs/pack-format.md. */
function joinPlanes(planes: Uint8Array[], split: Split): Uint8Array {
  const [first = new Uint8Array(), second = new Uint8Array(), third = new Uint8Array()] = planes;
  if (split.startsWith('none')) return first;
  const width = split === 'fp32-e8-sm8-r16' ? 4 : 2;
  const values = new Uint8Array(first.length * width);
  first.forEach((high, i) => {
    const low = second[i] ?? 0;
    const half = split === 'fp16-hi8-lo8' ? (high << 8) | low : ((low & 0x80) << 8) | (high << 7) | (low & 0x7f);
    values[width * i + width - 2] = half & 0xff;
    values[width * i + width - 1] = half >> 8;
    if (width === 4) values.set(third.subarray(2 * i, 2 * i + 2), 4 * i);
  });
  return values;
}

const codeIs =
  (code: ErrorCode, ...parts: (string | RegExp)[]) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof OdmoeError, String(error));
    assert.equal(error.code, code, error.message);
    for (const part of parts) assert.match(error.message, part instanceof RegExp ? part : new RegExp(part));
    return true;
  };

describe('native checksums and planes', () => {
  it('compute CRC-32C, whole and in pieces', () => {
    assert.equal(crc32c(Buffer.from('123456789'), 0), 0xe3069283);
    assert.equal(crc32c(new Uint8Array(0), 0), 0);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.nat(300), (bytes, cut) => {
        assert.equal(crc32c(bytes, 0), slowCrc32c(bytes));
        assert.equal(crc32c(bytes.subarray(cut), crc32c(bytes.subarray(0, cut), 0)), slowCrc32c(bytes));
      }),
    );
  });

  it('compute CRC-32C of long data at any address', () => {
    const bytes = Uint8Array.from({ length: 7000 }, (_, i) => (i * i * 7 + (i >> 3)) & 0xff);
    for (const begin of [0, 1, 7]) {
      for (const length of [1023, 1024, 3071, 3072, 3073, 3080, 6143, 6144, 6500]) {
        const part = bytes.subarray(begin, begin + length);
        assert.equal(crc32c(part, 0), slowCrc32c(part), `${length} bytes from ${begin}`);
        const cut = part.length - 3072;
        if (cut > 0) assert.equal(crc32c(part.subarray(cut), crc32c(part.subarray(0, cut), 0)), slowCrc32c(part));
      }
    }
  });

  it('split values into planes that give the same bytes again, whatever the bit pattern', () => {
    const splits: Split[] = ['none-bf16', 'none-fp16', 'none-fp32', 'bf16-e8-sm8', 'fp16-hi8-lo8', 'fp32-e8-sm8-r16'];
    fc.assert(
      fc.property(fc.constantFrom(...splits), fc.uint8Array({ maxLength: 64 }), (split, some) => {
        const values = some.subarray(0, some.length - (some.length % 4));
        const planes = splitPlanes(values, split);
        assert.deepEqual(joinPlanes(planes, split), values);
      }),
    );
    assert.deepEqual(
      splitPlanes(Uint8Array.of(0x80, 0xbf), 'bf16-e8-sm8').map((plane) => [...plane]),
      [[0x7f], [0x80]],
    );
    assert.throws(() => splitPlanes(new Uint8Array(3), 'none-bf16'), codeIs('INTERNAL'));
  });
});

describe('the native loading of experts', () => {
  let directory: string;
  let device: Device;
  let slots: ExpertSlots;
  let expected: Uint32Array;

  const run = async (source: ExpertSource): Promise<Uint32Array> => {
    const outcome = await slots.load(0, slots.register(source), FROM_STORAGE);
    assert.equal(outcome.loaded, true);
    const output = new Uint8Array(hiddenSize * 4);
    await slots.execute(0, 1, HIDDEN, output);
    return bits(output);
  };

  /** Writes values as chunks of at most `chunkBytes` for each plane, all in one file, and returns their places. */
  const store = (name: string, values: Uint8Array, rows: number, split: Split, chunkBytes: number): TensorSource => {
    const path = join(directory, name);
    const pieces: Uint8Array[] = [Buffer.alloc(7)];
    const chunks: ChunkLocation[] = [];
    let offsetBytes = 7;
    splitPlanes(values, split).forEach((plane, index) => {
      for (let from = 0; from < plane.length; from += chunkBytes) {
        const bytes = plane.subarray(from, from + chunkBytes);
        const size = bytes.length;
        chunks.push({
          plane: index,
          path,
          offsetBytes,
          storedBytes: size,
          plainBytes: size,
          codec: 'raw',
          crc32c: crc32c(bytes, 0),
        });
        pieces.push(bytes);
        offsetBytes += size;
      }
    });
    writeFileSync(path, Buffer.concat(pieces));
    return { rows, columns: values.length / (split.includes('fp32') ? 4 : 2) / rows, split, chunks, view: null };
  };

  const storeExpert = (prefix: string, split: Split, chunkBytes: number, widen = false): ExpertSource => {
    const matrix = (which: 'gate' | 'up' | 'down', rows: number): TensorSource => {
      const bytes = bytesOf(expertName(1, 3, which));
      const wide = new Uint8Array(bytes.length * 2).map((_, i) =>
        i % 4 < 2 ? 0 : (bytes[(i >> 2) * 2 + (i % 2)] ?? 0),
      );
      return store(`${prefix}-${which}`, widen ? wide : bytes, rows, split, chunkBytes);
    };
    return {
      gate: matrix('gate', intermediateSize),
      up: matrix('up', intermediateSize),
      down: matrix('down', hiddenSize),
      biases: null,
    };
  };

  const withChunk = (source: ExpertSource, change: (chunk: ChunkLocation) => Partial<ChunkLocation>): ExpertSource => ({
    ...source,
    up: {
      ...source.up,
      chunks: source.up.chunks.map((chunk, i) => (i === 1 ? { ...chunk, ...change(chunk) } : chunk)),
    },
  });

  before(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-native-loading-'));
    device = openTestDevice();
    slots = device.createExpertSlots(
      { hiddenSize, glu: plainGlu(intermediateSize), format: 'bf16' },
      1,
      4,
      PLAIN_LOADER,
    );
    expected = await run(expertSource(1, 3));
  });

  after(() => {
    slots.dispose();
    device.dispose();
    rmSync(directory, { recursive: true });
  });

  it('gives the same expert from planes in chunks of any size', async () => {
    for (const chunkBytes of [1 << 20, 4096, 1000, 37]) {
      assert.deepEqual(
        await run(storeExpert('split', 'bf16-e8-sm8', chunkBytes)),
        expected,
        `${chunkBytes}-byte chunks`,
      );
    }
    assert.deepEqual(await run(storeExpert('wide', 'fp32-e8-sm8-r16', 777, true)), expected);
    assert.deepEqual(await run(storeExpert('plain-wide', 'none-fp32', 777, true)), expected);
  });

  it('counts the bytes it reads', async () => {
    const outcome = await slots.load(0, slots.register(storeExpert('counted', 'bf16-e8-sm8', 1000)), FROM_STORAGE);
    assert.equal(outcome.readBytes, 3 * hiddenSize * intermediateSize * 2);
    assert.ok(outcome.loadMs >= 0);
  });

  it('refuses bytes that do not match their checksum, and leaves the slot empty', async () => {
    const source = withChunk(storeExpert('flipped', 'bf16-e8-sm8', 1000), (chunk) => ({
      crc32c: (chunk.crc32c ?? 0) ^ 1,
    }));
    await assert.rejects(
      slots.load(0, slots.register(source), FROM_STORAGE),
      codeIs('PACK_CORRUPT', 'flipped-up at offset 1007', 'checksum', 'odmoe inspect --verify'),
    );
    await assert.rejects(slots.execute(0, 1, HIDDEN, new Uint8Array(hiddenSize * 4)), codeIs('INTERNAL', 'no expert'));
    assert.deepEqual(await run(storeExpert('whole', 'bf16-e8-sm8', 1000)), expected);
  });

  it('refuses a truncated file, a missing one and sizes that contradict each other', async () => {
    const truncated = storeExpert('truncated', 'bf16-e8-sm8', 1000);
    truncateSync(join(directory, 'truncated-up'), 1500);
    await assert.rejects(
      slots.load(0, slots.register(truncated), FROM_STORAGE),
      codeIs('PACK_CORRUPT', 'truncated-up', 'the file ends', 'inspect'),
    );

    const missing = withChunk(storeExpert('there', 'bf16-e8-sm8', 15 * hiddenSize), () => ({
      path: join(directory, 'not-there'),
    }));
    await assert.rejects(
      slots.load(0, slots.register(missing), FROM_STORAGE),
      codeIs('STORAGE_FAILED', 'not-there', 'No such file'),
    );

    const short = withChunk(storeExpert('short', 'bf16-e8-sm8', 1000), () => ({ plainBytes: 999, storedBytes: 999 }));
    await assert.rejects(slots.load(0, slots.register(short), FROM_STORAGE), codeIs('PACK_CORRUPT', 'do not make up'));

    const lying = withChunk(storeExpert('lying', 'bf16-e8-sm8', 1000), () => ({ storedBytes: 1001 }));
    await assert.rejects(
      slots.load(0, slots.register(lying), FROM_STORAGE),
      codeIs('PACK_CORRUPT', '1001 bytes for 1000'),
    );

    const foreign = withChunk(storeExpert('foreign', 'bf16-e8-sm8', 1000), () => ({ plane: 2 }));
    await assert.rejects(slots.load(0, slots.register(foreign), FROM_STORAGE), codeIs('PACK_CORRUPT', 'plane 2'));
  });

  it('reports MODEL_CORRUPT where a checkpoint, which has no checksums, is damaged', async () => {
    const checkpoint = expertSource(0, 0);
    const beyond = {
      ...checkpoint.down,
      chunks: checkpoint.down.chunks.map((c) => ({ ...c, offsetBytes: c.offsetBytes + 2e9 })),
    };
    await assert.rejects(
      slots.load(0, slots.register({ ...checkpoint, down: beyond }), FROM_STORAGE),
      codeIs('MODEL_CORRUPT', 'the file ends'),
    );
    const { gate, up, down } = checkpoint;
    await assert.rejects(
      slots.load(0, slots.register({ gate, up: down, down: up, biases: null }), FROM_STORAGE),
      codeIs('MODEL_CORRUPT', 'the up matrix', '64 x 96'),
    );
  });

  it('refuses invalid byte counts at registration, and experts that were not registered', async () => {
    const bad = withChunk(storeExpert('bad', 'bf16-e8-sm8', 1000), () => ({ offsetBytes: -1 }));
    assert.throws(() => slots.register(bad), codeIs('INTERNAL', 'chunk.offsetBytes is -1'));
    await assert.rejects(slots.load(0, 1_000_000, FROM_STORAGE), codeIs('INTERNAL', 'has not been registered'));
  });
});
