import assert from 'node:assert/strict';
import { plainGlu } from '../../engine/emulation/plain-shape.js';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import {
  FROM_STORAGE,
  PLAIN_LOADER,
  crc32c,
  encodeChunk,
  splitPlanes,
  type Device,
  type ExpertSlots,
  type LoaderOptions,
  type LoadRequest,
} from '../../native/index.js';
import { partSizes } from '../../shared/model/part-sizes.js';
import type { ChunkCodec, ChunkLocation, ExpertSource, TensorSource } from '../../shared/model/tensor-source.js';
import { alignUp, blockRows, shardRanges } from '../../packs/format/pack-layout.js';
import { FIXTURE_SIZES, bits, bytesOf, expertName, expertSource, openTestDevice } from './native-test-model.js';
import { PARTS, perPart, sumOfParts } from '../../shared/model/expert-parts.js';

const { hiddenSize, intermediateSize } = FIXTURE_SIZES;
const EXPERT_SHAPE = { hiddenSize, glu: plainGlu(intermediateSize), format: 'bf16' } as const;
const HIDDEN = new Uint8Array(Float32Array.from({ length: hiddenSize }, (_, i) => Math.cos(i)).buffer);
const CODECS: readonly ChunkCodec[] = ['raw', 'zstd', 'lz4hc', 'fixed4', 'huffman'];
const SHARDS = 5;
/** A rate at which a load of the fixture's experts takes about 20 ms. */
const SLOW_BYTES_PER_S = 1e6;

/** The expert in a file of the same name in another directory. */
function movedTo(folder: string, { gate, up, down }: ExpertSource): ExpertSource {
  const moved = (tensor: TensorSource): TensorSource => ({
    ...tensor,
    chunks: tensor.chunks.map((chunk) => ({ ...chunk, path: join(dirname(chunk.path), folder, basename(chunk.path)) })),
  });
  return { gate: moved(gate), up: moved(up), down: moved(down), biases: null };
}

describe('the native expert loader', () => {
  let directory: string;
  let device: Device;
  let expected: Uint32Array;
  const sources = new Map<ChunkCodec, ExpertSource>();

  const withSlots = async (
    count: number,
    options: Partial<LoaderOptions>,
    use: (slots: ExpertSlots) => Promise<void>,
  ): Promise<void> => {
    const loader = { ...PLAIN_LOADER, ...partSizes(sources.values()), ...options };
    const slots = device.createExpertSlots(EXPERT_SHAPE, count, 4, loader);
    try {
      await use(slots);
    } finally {
      slots.dispose();
    }
  };

  const run = async (slots: ExpertSlots, slot = 0): Promise<Uint32Array> => {
    const output = new Uint8Array(hiddenSize * 4);
    await slots.execute(slot, 1, HIDDEN, output);
    return bits(output);
  };

  const sourceOf = (codec: ChunkCodec): ExpertSource => sources.get(codec) ?? assert.fail(`nothing stored by ${codec}`);

  /** The fixture's expert as a pack stores it. */
  const store = async (codec: ChunkCodec): Promise<ExpertSource> => {
    const path = join(directory, codec);
    const pieces: Uint8Array[] = [];
    let offsetBytes = 0;
    const addChunk = async (plane: number, by: ChunkCodec, plain: Uint8Array, blockBytes: number) => {
      const stored = await encodeChunk(by, by === 'zstd' || by === 'lz4hc' ? 3 : 0, plain, blockBytes);
      const chunk: ChunkLocation = {
        plane,
        path,
        offsetBytes,
        storedBytes: stored.length,
        plainBytes: plain.length,
        codec: by,
        crc32c: crc32c(stored, 0),
      };
      const padding = alignUp(stored.length) - stored.length;
      pieces.push(stored, new Uint8Array(padding));
      offsetBytes += stored.length + padding;
      return chunk;
    };
    const matrix = async (which: 'gate' | 'up' | 'down', rows: number): Promise<TensorSource> => {
      const values = bytesOf(expertName(1, 3, which));
      const columns = values.length / 2 / rows;
      const [exponents = new Uint8Array(), signMantissas = new Uint8Array()] = splitPlanes(values, 'bf16-e8-sm8');
      const blockBytes = blockRows(rows, columns) * columns;
      const chunks = [await addChunk(1, 'raw', signMantissas, blockBytes)];
      for (const shard of shardRanges(rows, SHARDS)) {
        const first = shard.firstRow * columns;
        chunks.push(await addChunk(0, codec, exponents.subarray(first, first + shard.rows * columns), blockBytes));
      }
      return { rows, columns, split: 'bf16-e8-sm8', chunks, view: null };
    };
    const source = {
      gate: await matrix('gate', intermediateSize),
      up: await matrix('up', intermediateSize),
      down: await matrix('down', hiddenSize),
      biases: null,
    };
    writeFileSync(path, Buffer.concat(pieces));
    return source;
  };

  before(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-native-loader-'));
    device = openTestDevice();
    for (const codec of CODECS) sources.set(codec, await store(codec));
    await withSlots(1, {}, async (slots) => {
      await slots.load(0, slots.register(expertSource(1, 3)), FROM_STORAGE);
      expected = await run(slots);
    });
  });

  after(() => {
    assert.equal(device.info().usedBytes, 0, 'all slots gave back what they took');
    device.dispose();
    rmSync(directory, { recursive: true });
  });

  it('gives the same expert from every codec, with direct reads too, with any number of threads', async () => {
    for (const options of [{}, { directIo: true }, { decompressionThreads: 1 }, { decompressionThreads: 5 }]) {
      await withSlots(1, options, async (slots) => {
        for (const codec of CODECS) {
          const outcome = await slots.load(0, slots.register(sourceOf(codec)), FROM_STORAGE);
          assert.equal(outcome.loaded, true);
          assert.deepEqual(await run(slots), expected, codec);
        }
      });
    }
  });

  it('leaves parts in cache entries, and uses them when their file has gone', async () => {
    const source = await store('huffman');
    const gone = { ...source };
    await withSlots(2, { entries: { exponent: 2, signMantissa: 1 } }, async (slots) => {
      const kept = await slots.load(0, slots.register(source), {
        ...FROM_STORAGE,
        parts: { exponent: { from: 'storage', entry: 1 }, signMantissa: { from: 'storage', entry: 0 } },
      });
      assert.deepEqual(kept.cached, { exponent: true, signMantissa: true });
      rmSync(join(directory, 'huffman'));
      const held: LoadRequest = {
        ...FROM_STORAGE,
        parts: { exponent: { from: 'entry', entry: 1 }, signMantissa: { from: 'entry', entry: 0 } },
      };
      const [first, second] = await Promise.all([
        slots.load(0, slots.register(gone), held),
        slots.load(1, slots.register(gone), held),
      ]);
      for (const outcome of [first, second]) assert.deepEqual([outcome.loaded, outcome.readBytes], [true, 0]);
      assert.deepEqual(await run(slots, 0), expected);
      assert.deepEqual(await run(slots, 1), expected);
      // This stands for a pack that was mended in another directory.
      const moved = await slots.load(0, slots.register(movedTo('elsewhere', source)), held);
      assert.deepEqual([moved.loaded, moved.readBytes], [true, 0]);
      await assert.rejects(slots.load(0, slots.register(sourceOf('zstd')), held), {
        code: 'INTERNAL',
        message: /another expert/,
      });
      await assert.rejects(run(slots, 0), { code: 'INTERNAL' });
      await assert.rejects(slots.load(1, slots.register(gone), FROM_STORAGE), { code: 'STORAGE_FAILED' });
    });
    sources.set('huffman', await store('huffman'));
  });

  it('reports the bytes that it read, and the time of each step', async () => {
    await withSlots(1, { storageBytesPerS: SLOW_BYTES_PER_S }, async (slots) => {
      const source = sourceOf('zstd');
      const outcome = await slots.load(0, slots.register(source), FROM_STORAGE);
      const chunks = [...source.gate.chunks, ...source.up.chunks, ...source.down.chunks];
      assert.equal(
        outcome.readBytes,
        chunks.reduce((sum, chunk) => sum + chunk.storedBytes, 0),
      );
      assert.ok(PARTS.every((part) => outcome.readMs[part] > 0) && outcome.decompressMs > 0);
      assert.ok(outcome.loadMs >= sumOfParts(outcome.readMs));
      assert.deepEqual(outcome.cached, { exponent: false, signMantissa: false });
    });
  });

  it('settles a cancelled load, loads in order, and starts with the experts that main waits for', async () => {
    await withSlots(4, { storageBytesPerS: SLOW_BYTES_PER_S }, async (slots) => {
      const ended: number[] = [];
      const loads = [0, 1, 2, 3].map(async (slot) => {
        const { loaded } = await slots.load(slot, slots.register(sourceOf('raw')), FROM_STORAGE);
        if (loaded) ended.push(slot);
        return loaded;
      });
      const place = { block: 0, position: 0 };
      slots.reorder(2, [place, place, place]);
      slots.prioritize(3);
      slots.cancel(1);
      assert.deepEqual(await Promise.all(loads), [true, false, true, true]);
      assert.deepEqual(ended, [3, 2, 0]);
      await assert.rejects(run(slots, 1), { code: 'INTERNAL' });
      assert.deepEqual(await run(slots, 3), expected);
    });
  });

  it('counts cache entries in its use of device memory', async () => {
    const options = { entries: { exponent: 3, signMantissa: 2 } };
    const loader = { ...PLAIN_LOADER, ...partSizes(sources.values()), ...options };
    const bytes = device.expertSlotBytes(EXPERT_SHAPE, 4, loader);
    await withSlots(2, options, async () => {
      const { slotBytes, sharedBytes, entryBytes } = bytes;
      const total = 2 * slotBytes + sharedBytes + 3 * entryBytes.exponent + 2 * entryBytes.signMantissa;
      assert.equal(device.info().usedBytes, total);
    });
  });

  it('refuses invalid requests and options', async () => {
    await withSlots(1, {}, async (slots) => {
      const load = (request: Partial<LoadRequest>): Promise<unknown> =>
        slots.load(0, slots.register(sourceOf('raw')), { ...FROM_STORAGE, ...request });
      const loadWith = (parts: Partial<LoadRequest['parts']>): Promise<unknown> =>
        load({ parts: { ...FROM_STORAGE.parts, ...parts } });
      const refused = { code: 'INTERNAL' };
      await assert.rejects(loadWith({ exponent: { from: 'entry', entry: -1 } }), refused);
      await assert.rejects(loadWith({ exponent: { from: 'storage', entry: 0 } }), refused);
      await assert.rejects(loadWith({ signMantissa: { from: 'nowhere' as 'entry', entry: 0 } }), refused);
      await assert.rejects(load({ order: [] as never }), refused);
      assert.throws(() => {
        slots.reorder(0, [{ block: 0.5, position: 0 }] as never);
      }, refused);
      assert.throws(() => {
        slots.prioritize(1);
      }, refused);
      assert.equal((await slots.load(0, slots.register(sourceOf('raw')), FROM_STORAGE)).loaded, true);
    });
    await assert.rejects(
      withSlots(1, { decompressionThreads: 65 }, () => Promise.resolve()),
      { code: 'INTERNAL' },
    );
    await assert.rejects(
      withSlots(1, { storageBytesPerS: -1 }, () => Promise.resolve()),
      { code: 'INTERNAL' },
    );
  });
});

describe('the sizes of expert parts', () => {
  it('are the largest ones, at the boundaries of direct reads, with coded chunks apart', () => {
    const chunk = (plane: number, codec: ChunkCodec, offsetBytes: number, storedBytes: number): ChunkLocation => ({
      plane,
      codec,
      offsetBytes,
      storedBytes,
      plainBytes: storedBytes,
      path: '',
      crc32c: null,
    });
    const tensor = (...chunks: ChunkLocation[]): TensorSource => ({
      rows: 1,
      columns: 1,
      split: 'bf16-e8-sm8',
      chunks,
      view: null,
    });
    const small = tensor(chunk(1, 'raw', 0, 4096), chunk(0, 'zstd', 4096, 10));
    const large = tensor(chunk(1, 'raw', 4000, 200), chunk(0, 'zstd', 8192, 5000), chunk(0, 'raw', 0, 100_000));
    assert.deepEqual(
      partSizes([
        { gate: small, up: small, down: small, biases: null },
        { gate: small, up: small, down: large, biases: null },
      ]),
      {
        expertBytes: { exponent: 2 * 4096 + 8192 + 102_400, signMantissa: 2 * 4096 + 8192 },
        shardBytes: { exponent: 8192, signMantissa: 0 },
      },
    );
    assert.deepEqual(partSizes([]), { expertBytes: perPart(() => 0), shardBytes: perPart(() => 0) });
  });
});
