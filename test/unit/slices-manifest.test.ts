import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { copyFile, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { crc32c } from '../../native/index.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import type { PackDamage } from '../../packs/packing/verify-pack.js';
import { openSlices, parseSlices, readSlices } from '../../packs/slices/open-slices.js';
import { serializeSlices, type SlicesManifest } from '../../packs/slices/slices-manifest.js';
import { verifySlices } from '../../packs/slices/verify-slices.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { finiteTensors, slice, withPack } from './sliced-pack.js';
import { writeTinyCheckpoint } from './tiny-checkpoint.js';
import { directoryDigests, pack, refusal } from './tiny-pack.js';

function first<T>(list: readonly T[]): T {
  const [item] = list;
  assert.ok(item !== undefined);
  return item;
}

async function flipByte(path: string, offset: number): Promise<void> {
  const bytes = await readFile(path);
  bytes[offset] = (bytes[offset] ?? 0) ^ 1;
  await writeFile(path, bytes);
}

async function damagesIn(output: string): Promise<PackDamage[]> {
  const opened = await openPack(output);
  return verifySlices(await readSlices(opened), opened, NATIVE_SLICING_TOOLS);
}

describe('slices.json', () => {
  let manifest: SlicesManifest;
  let opened: Pack;
  before(async () => {
    await withPack(async (output) => {
      await slice(output);
      opened = await openPack(output);
      ({ manifest } = await openSlices(output));
    });
  });

  const refuses = (change: (copy: SlicesManifest) => unknown, message: RegExp): void => {
    const copy = structuredClone(manifest);
    const replaced = change(copy);
    assert.throws(() => parseSlices(replaced ?? copy, opened, 'slices.json'), refusal('PACK_CORRUPT', message));
  };

  it('is accepted as written, with a list of measured thresholds or none', () => {
    const measured = { ...manifest, theta: [{ critical: 0.3, theta: 0.55 }] };
    for (const slices of [manifest, measured]) {
      assert.deepEqual(parseSlices(JSON.parse(serializeSlices(slices)), opened, 'slices.json'), slices);
    }
  });

  it('is refused with another format or version', () => {
    refuses(() => [], /does not describe slices/);
    refuses(() => ({ format: 'odmoe-pack' }), /does not describe slices/);
    assert.throws(
      () => parseSlices({ ...manifest, format_version: 2 }, opened, 'slices.json'),
      refusal('MODEL_UNSUPPORTED', /format version 2, this odmoe reads version 1; remove it/),
    );
  });

  it('is refused with paths that leave the directory, and with files of another kind', () => {
    for (const name of [
      '../slices-00000.upper.bin',
      '/etc/passwd',
      'a/slices-00000.upper.bin',
      'experts-00000.bin',
      '',
    ]) {
      refuses((copy) => void (first(copy.files).name = name), /files\[0\]\.name/);
    }
    refuses((copy) => void copy.files.reverse(), /slices-00001\.lower\.bin is listed where slices-00000\.upper\.bin/);
    refuses((copy) => void copy.files.pop(), /3 files, expected 4/);
  });

  it('is refused with unknown keys or values', () => {
    refuses((copy) => void Object.assign(copy, { extra: 1 }), /extra/);
    refuses((copy) => void Object.assign(first(copy.experts).up, { plane: 1 }), /plane/);
    refuses((copy) => void Object.assign(copy, { split: 'bf16-e8-sm8' }), /split/);
    for (const critical of [2, 1, 0, -0.1]) {
      refuses((copy) => void Object.assign(copy, { theta: [{ critical, theta: 0 }] }), /theta\[0\]\.critical/);
    }
    refuses((copy) => void (first(copy.experts).gate.lower.stored_bytes = -1), /gate\.lower\.stored_bytes/);
  });

  it('is refused where it contradicts the pack', () => {
    refuses((copy) => void (copy.source_fingerprint = '0'.repeat(64)), /slices of another model/);
    refuses((copy) => void (copy.split = 'sliced63'), /gate upper has 380 bytes at 0, expected 300 at 0/);
    refuses((copy) => void (first(copy.experts).down.rows += 1), /layer 0 expert 0 down is 17 x 20, expected 16 x 20/);
    refuses((copy) => void (first(copy.experts).up.upper.offset_bytes = 1 << 20), /up upper has \d+ bytes at 1048576/);
    refuses((copy) => void (first(copy.experts).up.lower.stored_bytes += 4096), /up lower has/);
    refuses((copy) => void copy.experts.reverse(), /layer 1 expert 2 stands where layer 0 expert 0 is expected/);
    refuses((copy) => void copy.experts.pop(), /5 experts, expected 2 layers of 3/);
    refuses((copy) => void (first(copy.experts).gate.source_crc32c = 1), /not those of the pack's weights/);
    refuses((copy) => {
      first(copy.experts).biases = { offset_bytes: 0, stored_bytes: 1, crc32c: 0 };
    }, /has biases, and none are expected/);
  });

  it('is refused with the first three of many problems', () => {
    const first3 = /^slices\.json: [^;]+; [^;]+; [^;]+; and \d+ more; remove it and make the slices with [^;]+$/;
    refuses((copy) => void (copy.split = 'sliced42'), first3);
    refuses((copy) => copy.files.forEach((file) => Object.assign(file, { size_bytes: -1 })), first3);
  });

  it('with any number changed is refused, or names no byte outside its files', () => {
    const places = numbersIn(manifest);
    fc.assert(
      fc.property(
        fc.constantFrom(...places),
        fc.oneof(fc.maxSafeInteger(), fc.double(), fc.integer()),
        (path, value) => {
          const copy = structuredClone(manifest);
          // No negative zero.
          setAt(copy, path, value + 0);
          fc.pre(!isDeepStrictEqual(copy, manifest));
          let found: SlicesManifest;
          try {
            found = parseSlices(copy, opened, 'slices.json');
          } catch (thrown) {
            assert.ok(thrown instanceof OdmoeError && ['PACK_CORRUPT', 'MODEL_UNSUPPORTED'].includes(thrown.code));
            return;
          }
          const last = found.experts.at(-1)?.down;
          assert.deepEqual(found.files, manifest.files);
          assert.equal(last?.upper.offset_bytes, manifest.experts.at(-1)?.down.upper.offset_bytes);
          // Checksums of slices and thresholds alone may be anything: reading the slices compares the former.
          assert.match(path.at(-1) ?? '', /^(crc32c|critical|theta)$/);
        },
      ),
      { numRuns: 300 },
    );
  });
});

describe('damaged slices', () => {
  it('are found with their places, and made again to the same bytes', async () => {
    await withPack(async (output) => {
      await slice(output);
      const whole = await directoryDigests(output);
      assert.deepEqual(await damagesIn(output), []);
      const [upper, lower] = ['slices-00000.upper.bin', 'slices-00001.lower.bin'];
      const cases: [file: string, damage: (path: string) => Promise<void>, place: string | null, found: RegExp][] = [
        [upper, async (path) => flipByte(path, 3), 'layer 0 expert 0 gate, upper slice', /crc32c/],
        [lower, async (path) => flipByte(path, 8192 + 3), 'layer 1 expert 0 down, lower slice', /crc32c/],
        // Between two slices.
        [lower, async (path) => flipByte(path, 4095), null, /sha256/],
        [upper, async (path) => truncate(path, 5000), null, /5000 bytes/],
        [lower, async (path) => rm(path), null, /no file/],
      ];
      for (const [file, damage, place, found] of cases) {
        await damage(join(output, file));
        const [damaged] = await damagesIn(output);
        assert.equal(damaged?.file, file);
        assert.equal(damaged.place, place);
        assert.match(damaged.found, found);
        const { mendedFiles, alreadyWhole } = await slice(output);
        assert.deepEqual([mendedFiles, alreadyWhole], [[file], true]);
        assert.deepEqual(await directoryDigests(output), whole);
      }
    });
  });

  it('are all made again by the advised command where slices.json is no JSON', async () => {
    await withPack(async (output) => {
      await slice(output);
      const whole = await directoryDigests(output);
      for (const text of ['', 'x', '{"format":', '\0\0']) {
        await writeFile(join(output, 'slices.json'), text);
        await assert.rejects(openSlices(output), refusal('PACK_CORRUPT', /make the slices with "odmoe pack --slices"/));
        const { mendedFiles, alreadyWhole } = await slice(output);
        assert.deepEqual([mendedFiles, alreadyWhole], [['slices.json'], false]);
        assert.deepEqual(await directoryDigests(output), whole);
      }
    });
  });

  it('are not opened when a file is missing or cut', async () => {
    await withPack(async (output) => {
      await slice(output);
      await truncate(join(output, 'slices-00000.upper.bin'), 4096);
      await rm(join(output, 'slices-00001.lower.bin'));
      await assert.rejects(
        openSlices(output),
        refusal('PACK_CORRUPT', /upper\.bin has 4096 bytes, expected \d+; slices-00001\.lower\.bin is missing/),
      );
    });
  });

  it('are found where every checksum is right and the weights are not those of the pack', async () => {
    await withPack(async (output) => {
      await slice(output);
      const path = join(output, 'slices-00001.lower.bin');
      await flipByte(path, 8192 + 3);
      const bytes = await readFile(path);
      const { manifest } = await readSlices(await openPack(output));
      const entry = manifest.experts[3];
      const file = manifest.files[3];
      assert.ok(entry !== undefined && file !== undefined);
      const { offset_bytes: offset, stored_bytes: size } = entry.down.lower;
      entry.down.lower.crc32c = crc32c(bytes.subarray(offset, offset + size), 0);
      file.sha256 = createHash('sha256').update(bytes).digest('hex');
      await writeFile(join(output, 'slices.json'), serializeSlices(manifest));
      const damages = await damagesIn(output);
      assert.equal(damages.length, 1);
      assert.equal(damages[0]?.place, 'layer 1 expert 0 down, lower slice');
      assert.match(damages[0].expected, /the slice of the pack's weights/);
    });
  });

  it('of another model are refused', async () => {
    await withPack(async (output) => {
      await slice(output);
      const tensors = finiteTensors();
      tensors.at(-1)?.data.fill(0);
      const other = `${output}-other`;
      await writeTinyCheckpoint(`${other}-checkpoint`, tensors);
      await pack(`${other}-checkpoint`, other);
      for (const name of Object.keys(await directoryDigests(output)).filter((entry) => entry.startsWith('slices'))) {
        await copyFile(join(output, name), join(other, name));
      }
      await assert.rejects(openSlices(other), refusal('PACK_CORRUPT', /slices of another model than the pack/));
      await assert.rejects(slice(other), refusal('PACK_CORRUPT', /slices of another model than the pack/));
    });
  });
});

/** Paths of all numbers in a value. */
function numbersIn(value: unknown, path: readonly string[] = []): (readonly string[])[] {
  if (typeof value === 'number') return [path];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => numbersIn(inner, [...path, key]));
}

function setAt(root: object, path: readonly string[], value: number): void {
  const parents = path.slice(0, -1);
  const parent = parents.reduce((inner: object, key) => (inner as Record<string, object>)[key] ?? {}, root);
  Object.assign(parent, { [path.at(-1) ?? '']: value });
}
