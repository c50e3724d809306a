import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openModelSource } from '../../packs/open-model-source.js';
import { type PackDamage, verifyPack } from '../../packs/packing/verify-pack.js';
import { crc32c } from '../../native/index.js';
import type { Manifest, ManifestChunk } from '../../packs/format/manifest.js';
import { openPack, parseManifest } from '../../packs/format/open-pack.js';
import { codecSetting } from '../../packs/format/pack-codec.js';
import { MEDIUM_CONFIG, weightTensors } from './medium-checkpoint.js';
import { failingAt, manifestFile, pack, refusal, TOOLS, withCheckpoint } from './tiny-pack.js';

const HUFFMAN = codecSetting('huffman', null);

async function withCodedPack(
  use: (output: string, checkpoint: string) => Promise<void>,
  dtype: 'BF16' | 'F16' = 'BF16',
): Promise<void> {
  await withCheckpoint(
    async (checkpoint, output) => {
      await pack(checkpoint, output, { codec: HUFFMAN });
      await use(output, checkpoint);
    },
    weightTensors(dtype),
    MEDIUM_CONFIG,
  );
}

function firstChunk(manifest: Manifest, plane = 0): ManifestChunk {
  const chunk = manifest.experts[0]?.gate.chunks.find((candidate) => candidate.plane === plane);
  assert.ok(chunk);
  return chunk;
}

describe('the manifest of a coded pack', () => {
  let manifest: Manifest;
  before(async () => {
    await withCodedPack(async (output) => {
      ({ manifest } = await openPack(output));
    }, 'F16');
  });

  const refuses = (change: (copy: Manifest) => void, message: RegExp): void => {
    const copy = structuredClone(manifest);
    change(copy);
    assert.throws(() => parseManifest(manifestFile(copy), 'manifest.json'), refusal('PACK_CORRUPT', message));
  };

  it('names codec and level of the pack and of each chunk', () => {
    assert.deepEqual([manifest.codec, manifest.codec_level], ['huffman', null]);
    const { chunks, split } = manifest.experts[0]?.gate ?? assert.fail();
    assert.equal(split, 'fp16-e5-lo8-s1m2');
    assert.deepEqual(
      chunks.map(({ plane, codec }) => `${plane} ${codec}`),
      [...Array<string>(4).fill('0 huffman'), '1 raw', ...Array<string>(4).fill('2 packed3')],
    );
  });

  it('is refused with a level that its codec lacks', () => {
    refuses((copy) => (copy.codec_level = 3), /codec_level is 3, the codec huffman has no levels/);
    refuses((copy) => Object.assign(copy, { codec: 'zstd' }), /codec_level is null, expected a level of zstd/);
    refuses((copy) => Object.assign(copy, { codec: 'packed3' }), /codec/);
  });

  it('is refused with chunks that do not follow from its codec and shards', () => {
    refuses((copy) => (firstChunk(copy).codec = 'fixed4'), /codec fixed4 in plane 0, expected huffman or raw/);
    refuses((copy) => (firstChunk(copy, 2).codec = 'huffman'), /huffman in plane 2, expected packed3 or raw/);
    refuses((copy) => (firstChunk(copy, 1).codec = 'huffman'), /huffman in plane 1, expected raw;/);
    refuses((copy) => (firstChunk(copy).codec = 'raw'), /raw chunk of two sizes/);
    refuses((copy) => {
      const chunk = firstChunk(copy);
      chunk.stored_bytes = chunk.plain_bytes;
    }, /no smaller than its contents/);
    refuses((copy) => (firstChunk(copy).plain_bytes += 64), /bytes in chunk 0 of plane 0, expected/);
    refuses((copy) => (copy.shards = 3), /4 chunks in plane 0, expected 3/);
    refuses((copy) => Object.assign(copy, { codec: 'raw' }), /not that of a pack with codec raw/);
  });
});

describe('verifying a coded pack', () => {
  /** Changes a stored byte, and all checksums of stored bytes to match. Only the values show the change. */
  const forge = async (output: string, offsetInChunk: number): Promise<PackDamage[]> => {
    const { manifest } = await openPack(output);
    const chunk = firstChunk(manifest);
    const path = join(output, 'experts-00000.bin');
    const bytes = await readFile(path);
    const at = chunk.offset_bytes + offsetInChunk;
    bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
    await writeFile(path, bytes);
    chunk.crc32c = crc32c(bytes.subarray(chunk.offset_bytes, chunk.offset_bytes + chunk.stored_bytes), 0);
    const file = manifest.files.find(({ name }) => name === 'experts-00000.bin');
    assert.ok(file);
    file.sha256 = createHash('sha256').update(bytes).digest('hex');
    await writeFile(join(output, 'manifest.json'), JSON.stringify(manifestFile(manifest)));
    return verifyPack(await openPack(output), TOOLS);
  };

  it('finds wrong values behind correct checksums, and chunks that cannot be decoded', async () => {
    await withCodedPack(async (output) => {
      const { stored_bytes: storedBytes } = firstChunk((await openPack(output)).manifest);
      for (const offset of [0, Math.floor(storedBytes * 0.7)]) {
        const damages = await forge(output, offset);
        assert.deepEqual(
          damages.map(({ file, place }) => `${file}: ${place}`),
          ['experts-00000.bin: layer 0 expert 0 gate'],
          `a byte at ${offset} of ${storedBytes}`,
        );
        assert.match(damages[0]?.expected ?? '', /^values of crc32c [0-9a-f]{8}$/);
      }
    });
  });

  it('names a damaged chunk once', async () => {
    await withCodedPack(async (output) => {
      const { offset_bytes: offset } = firstChunk((await openPack(output)).manifest);
      const path = join(output, 'experts-00000.bin');
      const bytes = await readFile(path);
      bytes.writeUInt8(bytes.readUInt8(offset + 40) ^ 4, offset + 40);
      await writeFile(path, bytes);
      const damages = await verifyPack(await openPack(output), TOOLS);
      assert.deepEqual(
        damages.map(({ place }) => place),
        ['layer 0 expert 0 gate, plane 0, chunk 0', null],
      );
    });
  });

  it('is part of the check for a pack that is already whole', async () => {
    await withCodedPack(async (output, checkpoint) => {
      assert.equal((await pack(checkpoint, output, { codec: HUFFMAN })).alreadyWhole, true);
      const controller = new AbortController();
      const stopped = pack(checkpoint, output, {
        codec: HUFFMAN,
        signal: controller.signal,
        onProgress: () => controller.abort(),
      });
      await assert.rejects(stopped, refusal('CANCELLED', /interrupted/));
      await assert.rejects(
        pack(checkpoint, output, { codec: codecSetting('zstd', 5) }),
        refusal('USAGE', /its codec is huffman, not zstd level 5/),
      );
      const path = join(output, 'experts-00001.bin');
      const bytes = await readFile(path);
      bytes.writeUInt8(bytes.readUInt8(100) ^ 1, 100);
      await writeFile(path, bytes);
      await assert.rejects(
        pack(checkpoint, output, { codec: HUFFMAN }),
        refusal('PACK_CORRUPT', /experts-00001\.bin: layer 1 expert 0 gate, plane 1/),
      );
      const replaced = await pack(checkpoint, output, { codec: HUFFMAN, onDamagedPack: 'replace' });
      assert.equal(replaced.alreadyWhole, false);
      assert.deepEqual(await verifyPack(await openPack(output), TOOLS), []);
    });
  });
});

describe('an unfinished coded pack', () => {
  it('is started again with another codec or level, and continued with the same', async () => {
    await withCheckpoint(
      async (checkpoint, output) => {
        const interrupt = async (level: number): Promise<void> => {
          const openFile = await failingAt(0.7, checkpoint);
          await assert.rejects(pack(checkpoint, output, { codec: codecSetting('zstd', level), openFile }));
          await assert.rejects(openModelSource(output), refusal('PACK_INCOMPLETE', /run odmoe pack again/));
        };
        await interrupt(3);
        await interrupt(4);
        const resumed = await pack(checkpoint, output, { codec: codecSetting('zstd', 4) });
        assert.ok(resumed.resumedFiles > 0);
        const fresh = await pack(checkpoint, `${output}-2`, { codec: codecSetting('zstd', 4) });
        assert.equal(resumed.digest, fresh.digest);
        await interruptAndSwitch(checkpoint, `${output}-3`);
      },
      weightTensors('BF16'),
      MEDIUM_CONFIG,
    );
  });
});

async function interruptAndSwitch(checkpoint: string, output: string): Promise<void> {
  const openFile = await failingAt(0.7, checkpoint);
  await assert.rejects(pack(checkpoint, output, { codec: codecSetting('fixed4', null), openFile }));
  const other = await pack(checkpoint, output, { codec: HUFFMAN });
  assert.equal(other.resumedFiles, 0);
  assert.equal((await openPack(output)).manifest.codec, 'huffman');
}
