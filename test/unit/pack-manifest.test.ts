import assert from 'node:assert/strict';
import { readFile, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { openModelSource } from '../../packs/open-model-source.js';
import { requireUndamaged, verifyPack, type PackDamage } from '../../packs/packing/verify-pack.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { type Manifest, serializeManifest } from '../../packs/format/manifest.js';
import { packExtents } from '../../packs/format/extents.js';
import { openPack, parseManifest } from '../../packs/format/open-pack.js';
import { isPackEntry, isPackFileName, shardRanges } from '../../packs/format/pack-layout.js';
import { withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { manifestFile, pack, refusal, TOOLS } from './tiny-pack.js';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

describe('the manifest of a pack', () => {
  let manifest: Manifest;
  before(async () => {
    await withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(join(directory, 'tiny'));
      await pack(join(directory, 'tiny'), join(directory, 'pack'));
      ({ manifest } = await openPack(join(directory, 'pack')));
    });
  });

  const refuses = (change: (copy: Manifest) => unknown, code: ErrorCode, message: RegExp): void => {
    const copy = structuredClone(manifest);
    const replaced = change(copy);
    const check = refusal(code, message);
    assert.throws(() => parseManifest(replaced ?? manifestFile(copy), 'manifest.json'), check);
  };

  it('is accepted as written', () => {
    assert.deepEqual(parseManifest(JSON.parse(serializeManifest(manifest)), 'manifest.json'), manifest);
  });

  it('is refused with another format or version, and the error says what to do', () => {
    refuses(() => ({ manifest_version: 3, name: 'an extension' }), 'PACK_CORRUPT', /not a manifest of a pack/);
    refuses(() => [], 'PACK_CORRUPT', /not a manifest/);
    refuses(
      (copy) => Object.assign(copy, { format_version: 2 }),
      'MODEL_UNSUPPORTED',
      /version 2, this odmoe reads version 3; pack the checkpoint again/,
    );
  });

  it('is refused with paths that leave the directory', () => {
    for (const name of ['../dense.safetensors', '/etc/passwd', 'a/config.json', 'experts-0.bin', 'manifest.json', '']) {
      refuses(
        (copy) => void copy.files.push({ name, size_bytes: 1, sha256: '0'.repeat(64) }),
        'PACK_CORRUPT',
        /files\[\d+\]\.name/,
      );
      refuses((copy) => void (first(copy.experts).file = name), 'PACK_CORRUPT', /experts\[0\]\.file/);
    }
  });

  it('is refused with unknown keys, codecs or splits', () => {
    refuses((copy) => void Object.assign(copy, { extra: 1 }), 'PACK_CORRUPT', /extra/);
    refuses((copy) => void Object.assign(copy.model.shape, { extra: 1 }), 'PACK_CORRUPT', /extra/);
    refuses((copy) => structuredClone(copy), 'PACK_CORRUPT', /Unrecognized keys: "keyvalueheads"/);
    refuses(
      (copy) => void Object.assign(first(first(copy.experts).up.chunks), { codec: 'zip' }),
      'PACK_CORRUPT',
      /codec/,
    );
    refuses((copy) => void Object.assign(first(copy.experts).up, { split: 'none-bf16' }), 'PACK_CORRUPT', /split/);
    refuses(
      (copy) => void (first(copy.experts).up.split = 'fp16-e5-lo8-s1m2'),
      'PACK_CORRUPT',
      /not that of a pack with codec raw/,
    );
  });

  it('is refused at the place where it contradicts itself', () => {
    refuses((copy) => void copy.model.shape.layers.pop(), 'PACK_CORRUPT', /1 layers have experts, and 2 are said/);
    refuses((copy) => void copy.files.pop(), 'PACK_CORRUPT', /experts-00001\.bin is not listed/);
    refuses((copy) => void (copy.model.shape.hiddenSize = 32), 'PACK_CORRUPT', /is 24 x 16, expected 24 x 32/);
    refuses((copy) => void (copy.model.shape.expertsPerToken = 9), 'PACK_CORRUPT', /9 experts per token/);
    refuses((copy) => void (copy.model.shipped_format = 'fp16'), 'PACK_CORRUPT', /experts need bf16/);
    refuses((copy) => void copy.experts.pop(), 'PACK_CORRUPT', /5 experts, expected 2 layers of 3/);
    refuses((copy) => void copy.experts.reverse(), 'PACK_CORRUPT', /stands where layer 0 expert 0 is expected/);
    refuses((copy) => void copy.dense.pop(), 'PACK_CORRUPT', /dense tensor lmHead of layer 0 is missing/);
    refuses((copy) => void copy.files.push(first(copy.files)), 'PACK_CORRUPT', /listed twice/);
    refuses((copy) => void first(copy.experts).down.chunks.pop(), 'PACK_CORRUPT', /0 chunks in plane 1, expected 1/);
    refuses(
      (copy) => void (first(first(copy.experts).down.chunks).plane = 2),
      'PACK_CORRUPT',
      /plane 2, expected planes below 2/,
    );
    refuses(
      (copy) => void (first(first(copy.experts).down.chunks).stored_bytes -= 1),
      'PACK_CORRUPT',
      /raw chunk of two sizes/,
    );
    refuses((copy) => void (first(first(copy.experts).down.chunks).offset_bytes += 8), 'PACK_CORRUPT', /not aligned/);
    refuses(
      (copy) => void (first(first(copy.experts).down.chunks).offset_bytes = 2 ** 40),
      'PACK_CORRUPT',
      /ends at byte/,
    );
    refuses((copy) => void (first(first(copy.experts).down.chunks).offset_bytes = 0), 'PACK_CORRUPT', /overlaps/);
  });

  it('is refused by an error of ours after any single change, or describes sound extents', () => {
    const written = manifestFile(manifest) as Json;
    const places = pathsOf(written);
    fc.assert(
      fc.property(fc.constantFrom(...places), fc.oneof(fc.jsonValue(), fc.nat()), (path, value) => {
        const copy = structuredClone(written);
        setAt(copy, path, value as Json);
        let found: Manifest;
        try {
          found = parseManifest(copy, 'manifest.json');
        } catch (thrown) {
          assert.ok(
            thrown instanceof OdmoeError && /^(PACK_CORRUPT|MODEL_UNSUPPORTED)$/.test(thrown.code),
            String(thrown),
          );
          return;
        }
        const sizes = new Map(found.files.map((file) => [file.name, file.size_bytes]));
        for (const extent of packExtents(found)) {
          assert.ok(isPackFileName(extent.file));
          assert.ok(extent.offsetBytes + extent.storedBytes <= (sizes.get(extent.file) ?? -1));
        }
      }),
      { numRuns: 400 },
    );
  });
});

describe('the split of a plane into shards', () => {
  it('covers all rows once, evenly', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 200 }), fc.integer({ min: 1, max: 64 }), (rows, shards) => {
        const ranges = shardRanges(rows, shards);
        assert.equal(ranges.length, Math.min(rows, shards));
        let next = 0;
        for (const range of ranges) {
          assert.equal(range.firstRow, next);
          assert.ok(Math.abs(range.rows - rows / ranges.length) < 1);
          next += range.rows;
        }
        assert.equal(next, rows);
      }),
    );
  });
});

describe('the names in a pack', () => {
  it('are limited to known ones', () => {
    for (const name of ['config.json', 'experts-00012.bin', 'dense.safetensors']) assert.ok(isPackFileName(name));
    for (const name of ['manifest.json', 'experts-1.bin', 'experts-00001.bin.partial', 'x', '..'])
      assert.ok(!isPackFileName(name));
    for (const name of ['experts-00001.bin.partial', 'packing.jsonl', 'packing.lock.ab']) assert.ok(isPackEntry(name));
    assert.ok(!isPackEntry('model.safetensors'));
  });
});

describe('opening and verifying a pack', () => {
  const withPack = async (use: (directory: string) => Promise<void>): Promise<void> =>
    withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(join(directory, 'tiny'));
      await pack(join(directory, 'tiny'), join(directory, 'pack'));
      await use(join(directory, 'pack'));
    });
  const verify = async (directory: string): Promise<PackDamage[]> => verifyPack(await openPack(directory), TOOLS);

  it('finds nothing wrong with an undamaged pack and reads all of it', async () => {
    await withPack(async (directory) => {
      const progress: [number, number][] = [];
      const source = await openPack(directory);
      const damages = await verifyPack(source, TOOLS, (done, total) => progress.push([done, total]));
      assert.deepEqual(damages, []);
      requireUndamaged(source, damages);
      const stored = packExtents(source.manifest).filter((extent) => extent.file !== 'dense.safetensors');
      const total =
        source.manifest.files.reduce((sum, file) => sum + file.size_bytes, 0) +
        stored.reduce((sum, extent) => sum + extent.storedBytes, 0);
      assert.deepEqual(progress.at(-1), [total, total]);
    });
  });

  it('names every damaged chunk and file, and bytes between chunks too', async () => {
    await withPack(async (directory) => {
      const { manifest } = await openPack(directory);
      const flip = async (name: string, offsetBytes: number): Promise<void> => {
        const bytes = await readFile(join(directory, name));
        bytes.writeUInt8(bytes.readUInt8(offsetBytes) ^ 0x10, offsetBytes);
        await writeFile(join(directory, name), bytes);
      };
      const chunk = manifest.experts[4]?.up.chunks[2];
      assert.ok(chunk);
      await flip('experts-00001.bin', chunk.offset_bytes + 3);
      await flip('dense.safetensors', manifest.dense[0]?.planes[0]?.offset_bytes ?? 0);
      await flip('experts-00000.bin', (manifest.experts[0]?.gate.chunks[0]?.offset_bytes ?? 0) + 4000);
      const damages = await verify(directory);
      assert.deepEqual(
        damages.map(({ file, place }) => `${file}: ${place}`),
        [
          'dense.safetensors: embedding of layer 0, plane 0',
          'dense.safetensors: null',
          'experts-00000.bin: null',
          'experts-00001.bin: layer 1 expert 1 up, plane 0, chunk 2',
          'experts-00001.bin: null',
        ],
      );
      const source = await openPack(directory);
      assert.throws(
        () => requireUndamaged(source, damages),
        refusal('PACK_CORRUPT', /5 damaged:.*layer 1 expert 1 up/s),
      );
    });
  });

  it('refuses a manifest cut short at any length', async () => {
    await withPack(async (directory) => {
      const path = join(directory, 'manifest.json');
      const whole = await readFile(path);
      for (let size = whole.length - 2; size >= 0; size -= 97) {
        await writeFile(path, whole.subarray(0, size));
        await assert.rejects(openModelSource(directory), refusal('PACK_CORRUPT', /manifest\.json: not valid JSON/));
      }
    });
  });

  it('refuses files of another size, and names all of them', async () => {
    await withPack(async (directory) => {
      await truncate(join(directory, 'experts-00000.bin'), 5000);
      await truncate(join(directory, 'dense.safetensors'), 0);
      await assert.rejects(
        openModelSource(directory),
        refusal('PACK_CORRUPT', /dense\.safetensors has 0 bytes, expected \d+; experts-00000\.bin has 5000 bytes/),
      );
    });
  });
});

function first<Item>(items: Item[]): Item {
  const [item] = items;
  assert.ok(item !== undefined);
  return item;
}

/** Paths to all inner values. */
function pathsOf(value: Json): (string | number)[][] {
  if (typeof value !== 'object' || value === null) return [[]];
  const entries: [string | number, Json][] = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return entries.flatMap(([key, member]) => [[key], ...pathsOf(member).map((path) => [key, ...path])]);
}

function setAt(root: Json, path: readonly (string | number)[], value: Json): void {
  let target = root as Record<string | number, Json>;
  for (const key of path.slice(0, -1)) target = target[key] as Record<string | number, Json>;
  target[path.at(-1) ?? ''] = value;
}
