import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { plainGlu, plainShape } from '../../engine/emulation/plain-shape.js';
import { crc32c, FROM_STORAGE, type ExpertSlots, openTensor, PLAIN_LOADER } from '../../native/index.js';
import type { Manifest, ManifestExpertTensor } from '../../packs/format/manifest.js';
import { openPack, parseManifest } from '../../packs/format/open-pack.js';
import { codecSetting, type PackCodec, settingOfFormats } from '../../packs/format/pack-codec.js';
import { packCompression } from '../../packs/pack-compression.js';
import { alignUp, SHARDS_LIMIT } from '../../packs/format/pack-layout.js';
import { writeExpertFile } from '../../packs/packing/expert-file.js';
import { matrixValues } from '../../packs/packing/matrix-values.js';
import { NATIVE_BYTE_TOOLS, NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { openOnDisk, PackFile } from '../../packs/packing/pack-file.js';
import { SourceReader } from '../../packs/packing/source-reader.js';
import { verifyPack } from '../../packs/packing/verify-pack.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { openFile } from '../../shared/base/files/read-file.js';
import { partSizes, storedPartBytes } from '../../shared/model/part-sizes.js';
import {
  EXPERT_MATRICES,
  type ExactFormat,
  type ExpertSource,
  type ModelSource,
  type TensorSource,
} from '../../shared/model/tensor-source.js';
import { hasE4m3Codes, planeRowBytes, type QuantizedSplit } from '../../shared/model/weight-dtype.js';
import { blockValues, QUANTIZED_SPLITS, shippedBytes } from './block-values.js';
import { bits, openTestDevice } from './native-test-model.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';
import { manifestFile, pack, refusal } from './tiny-pack.js';

const SIZE = 512;
const HIDDEN = new Uint8Array(Float32Array.from({ length: SIZE }, (_, i) => Math.cos(i) / 8).buffer);

interface Packed {
  /** The expert in a plain file, and as the pack stores it. */
  plain: ExpertSource;
  packed: ExpertSource;
  entries: readonly ManifestExpertTensor[];
  path: string;
}

function plainMatrix(directory: string, split: QuantizedSplit, seed: number): TensorSource {
  const path = join(directory, `plain-${seed}`);
  const planes = blockValues(split, SIZE, SIZE, seed);
  writeFileSync(path, Buffer.concat(planes));
  let offsetBytes = 0;
  const chunks = planes.map((bytes, plane) => {
    const place = { plane, path, offsetBytes, storedBytes: bytes.length, plainBytes: bytes.length };
    offsetBytes += bytes.length;
    return { ...place, codec: 'raw' as const, crc32c: crc32c(bytes, 0) };
  });
  return { rows: SIZE, columns: SIZE, split, chunks, view: null };
}

/** One expert of three matrices, written as `odmoe pack` writes it. */
async function packExpert(directory: string, split: QuantizedSplit, codec: PackCodec, shards = 4): Promise<Packed> {
  const [gate, up, down] = [1, 2, 3].map((seed) => plainMatrix(directory, split, seed));
  assert.ok(gate && up && down);
  const plain: ExpertSource = { gate, up, down, biases: null };
  const shape = plainShape({
    vocabSize: 300,
    hiddenSize: SIZE,
    intermediateSize: SIZE,
    layers: 1,
    heads: 4,
    keyValueHeads: 2,
    headDim: 16,
    experts: 1,
    expertsPerToken: 1,
  });
  const model = { shape, expert: () => plain } as Partial<ModelSource> as ModelSource;
  const file = await PackFile.create(directory, 'experts-00000.bin', openOnDisk);
  const { experts } = await writeExpertFile(model, 0, file, {
    outputDirectory: directory,
    codec: codecSetting(codec, null),
    shards,
    slicesOnly: false,
    tools: NATIVE_PACKING_TOOLS,
    reader: new SourceReader(openTensor, null),
    onBytes: () => undefined,
  });
  await file.finish();
  const [entry] = experts;
  assert.ok(entry);
  const path = join(directory, 'experts-00000.bin');
  const sourceOf = ({ rows, columns, chunks }: ManifestExpertTensor): TensorSource => ({
    rows,
    columns,
    split,
    view: null,
    chunks: chunks.map((chunk) => ({
      plane: chunk.plane,
      path,
      offsetBytes: chunk.offset_bytes,
      storedBytes: chunk.stored_bytes,
      plainBytes: chunk.plain_bytes,
      codec: chunk.codec,
      crc32c: chunk.crc32c,
    })),
  });
  const packed = { gate: sourceOf(entry.gate), up: sourceOf(entry.up), down: sourceOf(entry.down), biases: null };
  return { plain, packed, entries: EXPERT_MATRICES.map((part) => entry[part]), path };
}

function storedBytes(entries: readonly ManifestExpertTensor[], plane?: number): number {
  const chunks = entries
    .flatMap((entry) => entry.chunks)
    .filter((chunk) => plane === undefined || chunk.plane === plane);
  return chunks.reduce((sum, chunk) => sum + chunk.stored_bytes, 0);
}

function codecsOf(entries: readonly ManifestExpertTensor[], plane: number): string[] {
  const chunks = entries.flatMap((entry) => entry.chunks).filter((chunk) => chunk.plane === plane);
  return [...new Set(chunks.map((chunk) => chunk.codec))];
}

async function recovered({ entries, path }: Packed): Promise<number[]> {
  const handle = await openFile(path);
  const checksums: number[] = [];
  try {
    const read = async (offset: number, count: number): Promise<Uint8Array> => {
      const bytes = new Uint8Array(count);
      await handle.read(bytes, 0, count, offset);
      return bytes;
    };
    for (const entry of entries) {
      let crc = 0;
      for await (const values of matrixValues(entry, read, NATIVE_PACKING_TOOLS)) crc = crc32c(values, crc);
      checksums.push(crc);
    }
  } finally {
    await handle.close();
  }
  return checksums;
}

function expectedChecksums(split: QuantizedSplit): number[] {
  return [1, 2, 3].map((seed) => blockValues(split, SIZE, SIZE, seed).reduce((crc, bytes) => crc32c(bytes, crc), 0));
}

async function outputOf(slots: ExpertSlots, slot: number): Promise<Uint32Array> {
  const output = new Uint8Array(SIZE * 4);
  await slots.execute(slot, 1, HIDDEN, output);
  return bits(output);
}

async function withFixturePack(
  fixture: string,
  codec: PackCodec,
  use: (manifest: Manifest) => Promise<void> | void,
): Promise<void> {
  await withTemporaryDirectory(async (directory) => {
    const output = join(directory, 'pack');
    const tools = NATIVE_BYTE_TOOLS;
    await pack(join(packageRoot(), 'test', 'fixtures', fixture), output, { codec: codecSetting(codec, null), tools });
    const opened = await openPack(output);
    assert.deepEqual(await verifyPack(opened, NATIVE_BYTE_TOOLS), []);
    await use(opened.manifest);
  });
}

/** The manifest of a pack as releases before this one made it, each plane one raw chunk. The places are those of no file. */
function uncut(manifest: Manifest, change: (matrix: ManifestExpertTensor) => void = () => undefined): unknown {
  const copy = structuredClone(manifest);
  let offset = 0;
  for (const expert of copy.experts) {
    for (const part of EXPERT_MATRICES) {
      const { split, rows, columns } = expert[part];
      expert[part].chunks = planeRowBytes(split, columns).map((rowBytes, plane) => {
        const bytes = rows * rowBytes;
        const chunk = { plane, codec: 'raw' as const, offset_bytes: offset, stored_bytes: bytes, plain_bytes: bytes };
        offset = alignUp(offset + bytes);
        return { ...chunk, crc32c: 0 };
      });
      change(expert[part]);
    }
  }
  for (const file of copy.files) if (file.name.startsWith('experts-')) file.size_bytes = offset;
  return manifestFile(copy);
}

describe('packs of quantized experts', function () {
  this.timeout(120_000);

  it('record the codec that codes them, and raw where none does', async () => {
    const codecOf = (wanted: PackCodec, ...formats: ExactFormat[]): PackCodec =>
      settingOfFormats(formats, codecSetting(wanted, null)).codec;
    assert.equal(codecOf('huffman', 'fp8-row'), 'huffman');
    assert.equal(codecOf('fixed4', 'bf16'), 'fixed4');
    // One format that is coded is enough.
    assert.equal(codecOf('huffman', 'q4_k', 'fp8-row'), 'huffman');
    assert.equal(codecOf('fixed4', 'q4_k', 'bf16'), 'fixed4');
    assert.equal(codecOf('zstd', 'q4_k', 'q6_k'), 'zstd');
    for (const codec of ['huffman', 'fixed4', 'lz4hc'] as const) assert.equal(codecOf(codec, 'q4_k', 'q6_k'), 'raw');
    assert.equal(codecOf('lz4hc', 'fp8-row', 'q6_k'), 'raw');
    await withFixturePack('deepseekv3-fp8', 'huffman', (manifest) => {
      assert.equal(manifest.codec, 'huffman');
      const gate = manifest.experts[0]?.gate ?? assert.fail();
      assert.ok(gate.chunks.some((chunk) => chunk.plane === 0 && chunk.codec === 'e4m3'));
      const { planes } = packCompression(manifest);
      assert.deepEqual(
        planes.filter(({ split }) => split === 'fp8-tile').map(({ plane, codec, ratio }) => [plane, codec, ratio <= 1]),
        [
          [0, 'e4m3', true],
          [1, codecsOf([gate], 1).includes('zstd') ? 'zstd' : 'raw', true],
        ],
      );
    });
    for (const codec of ['huffman', 'fixed4', 'lz4hc'] as const) {
      await withFixturePack('gptoss-mxfp4', codec, (manifest) => {
        assert.deepEqual([manifest.codec, manifest.codec_level], ['raw', null]);
      });
    }
  });

  it('are read as earlier releases made them, and refused with other cuts', async () => {
    await withFixturePack('deepseekv3-fp8', 'huffman', (manifest) => {
      const parsed = parseManifest(uncut(manifest), 'manifest.json');
      assert.equal(parsed.experts[0]?.gate.chunks.length, 2);
      const refuses = (change: (matrix: ManifestExpertTensor) => void, message: RegExp): void => {
        assert.throws(() => parseManifest(uncut(manifest, change), 'manifest.json'), refusal('PACK_CORRUPT', message));
      };
      const [codes, scales] = [0, 1];
      refuses(({ chunks }) => Object.assign(chunks[codes] ?? {}, { codec: 'e4m3' }), /1 chunks in plane 0, expected 4/);
      refuses(
        ({ chunks }) => Object.assign(chunks[scales] ?? {}, { codec: 'zstd' }),
        /1 chunks in plane 1, expected 4/,
      );
      refuses(({ chunks }) => Object.assign(chunks[codes] ?? {}, { plain_bytes: 3 }), /bytes in chunk 0 of plane 0/);
    });
  });

  for (const codec of ['raw', 'huffman', 'zstd'] as const) {
    it(`hold at most 1 % more bytes than the tensors, and give all back (${codec})`, async () => {
      for (const split of QUANTIZED_SPLITS) {
        await withTemporaryDirectory(async (directory) => {
          const packed = await packExpert(directory, split, codec);
          const shipped = 3 * shippedBytes(split, SIZE, SIZE);
          const ratio = storedBytes(packed.entries) / shipped;
          assert.ok(ratio <= 1.01, `${split}: ${ratio}`);
          if (codec === 'huffman' && hasE4m3Codes(split)) {
            assert.deepEqual(codecsOf(packed.entries, 0), ['e4m3'], split);
            assert.ok(ratio < 0.85, `${split}: ${ratio}`);
          }
          assert.deepEqual(await recovered(packed), expectedChecksums(split), split);
          const checksums = packed.entries.map((entry) => entry.source_crc32c);
          assert.deepEqual(checksums, expectedChecksums(split), split);
        });
      }
    });
  }

  it('store repeated scales in a few bytes, and leave those raw that take no fewer blocks of the disk', async () => {
    await withTemporaryDirectory(async (directory) => {
      const { entries } = await packExpert(directory, 'fp8', 'raw');
      assert.deepEqual([codecsOf(entries, 0), codecsOf(entries, 1)], [['raw'], ['zstd']]);
      const plainBytes = 3 * SIZE * (planeRowBytes('fp8', SIZE)[1] ?? 0);
      assert.ok(storedBytes(entries, 1) < plainBytes / 20, `${storedBytes(entries, 1)} of ${plainBytes}`);
    });
    await withTemporaryDirectory(async (directory) => {
      // 64 shards take 64 blocks of 4096 bytes each, 16 KiB of scales take four.
      const { entries } = await packExpert(directory, 'mxfp8', 'huffman', SHARDS_LIMIT);
      assert.deepEqual(
        entries.map(({ chunks }) => chunks.map((chunk) => `${chunk.plane} ${chunk.codec}`)),
        Array<string[]>(3).fill([...Array<string>(SHARDS_LIMIT).fill('0 e4m3'), '1 raw']),
      );
    });
  });

  it('load into slots as they were, and from entries, where the second part may have no bytes', async () => {
    const device = openTestDevice();
    try {
      for (const split of QUANTIZED_SPLITS) {
        const usual = hasE4m3Codes(split) ? 'huffman' : 'raw';
        for (const codec of [usual, 'zstd'] as const) {
          await withTemporaryDirectory(async (directory) => {
            const { plain, packed } = await packExpert(directory, split, codec);
            const hasSecond = planeRowBytes(split, SIZE).length > 1;
            assert.equal(storedPartBytes(packed).signMantissa > 0, hasSecond);
            const loader = {
              ...PLAIN_LOADER,
              ...partSizes([plain, packed]),
              entries: { exponent: 1, signMantissa: 1 },
            };
            const shape = { hiddenSize: SIZE, glu: plainGlu(SIZE), format: split } as const;
            const slots = device.createExpertSlots(shape, 2, 4, loader);
            try {
              await slots.load(0, slots.register(plain), FROM_STORAGE);
              const expected = await outputOf(slots, 0);
              assert.ok(
                expected.some((number) => number !== expected[0]),
                split,
              );
              const expert = slots.register(packed);
              const kept = await slots.load(1, expert, {
                ...FROM_STORAGE,
                parts: { exponent: { from: 'storage', entry: 0 }, signMantissa: { from: 'storage', entry: 0 } },
              });
              assert.deepEqual(kept.cached, { exponent: true, signMantissa: true }, `${split} ${codec}`);
              assert.deepEqual(await outputOf(slots, 1), expected, `${split} ${codec}`);
              const again = await slots.load(0, expert, {
                ...FROM_STORAGE,
                parts: { exponent: { from: 'entry', entry: 0 }, signMantissa: { from: 'entry', entry: 0 } },
              });
              assert.equal(again.readBytes, 0);
              assert.deepEqual(await outputOf(slots, 0), expected, `${split} ${codec} from entries`);
            } finally {
              slots.dispose();
            }
          });
        }
      }
    } finally {
      device.dispose();
    }
  });
});
