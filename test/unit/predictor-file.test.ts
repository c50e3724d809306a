import assert from 'node:assert/strict';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { openAnyPack, type Pack } from '../../packs/format/open-pack.js';
import { isPackEntry, PREDICTOR_FILE } from '../../packs/format/pack-layout.js';
import { predictorBytes, type Predictor, readPredictor, writePredictor } from '../../packs/predictor/predictor-file.js';
import { predictorTensors, UNITS_LIMIT } from '../../packs/predictor/predictor-layout.js';
import { parseSafetensorsHeader } from '../../packs/checkpoint/safetensors-header.js';
import { existingDistances, type ExpertMapsShape, type LayerMaps } from '../../shared/model/expert-maps.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { pack, refusal, withCheckpoint } from './tiny-pack.js';

/** Shape of the tiny checkpoint. */
const TINY: ExpertMapsShape = { hiddenSize: 16, experts: 3, units: 4, layers: 2, distances: [0, 1, 2, 4] };

function drawnMaps(shape: ExpertMapsShape, layer: number, random: SeededRandom): LayerMaps {
  const { hiddenSize, experts, units } = shape;
  const rows = existingDistances(shape, layer).length * experts;
  const codes = (count: number): Int8Array => Int8Array.from({ length: count }, () => random.int(255) - 127);
  const floats = (count: number): Float32Array => Float32Array.from({ length: count }, () => random.int(1000) / 1000);
  return {
    units: codes(units * hiddenSize),
    unitScales: floats(units),
    heads: codes(rows * units),
    headScales: floats(rows),
    biases: floats(rows),
  };
}

function drawnPredictor(shape: ExpertMapsShape, seed: number): Predictor {
  const random = new SeededRandom(seed);
  const layers = Array.from({ length: shape.layers }, (_, layer) => drawnMaps(shape, layer, random));
  const recall = layers.flatMap((_, layer) =>
    existingDistances(shape, layer).map((distance) => ({ layer, distance, recall: random.int(1001) / 1000 })),
  );
  return { shape, layers, recall, tokens: random.int(100_000), seed, text: 'own answers "é"' };
}

async function withTinyPack(use: (tiny: Pack, path: string) => Promise<void>): Promise<void> {
  await withCheckpoint(async (checkpoint, output) => {
    await pack(checkpoint, output);
    const tiny = await openAnyPack(output);
    await use(tiny, join(tiny.directory, PREDICTOR_FILE));
  });
}

const remade = /predictor\.safetensors: .*"odmoe fit .*" makes it anew/;

describe('the file of a predictor', () => {
  it('is read as it was written, by the directory of its pack and by the opened pack', async () => {
    await withTinyPack(async (tiny) => {
      assert.equal(await readPredictor(tiny), null);
      const predictor = drawnPredictor(TINY, 1);
      await writePredictor(tiny.directory, predictor);
      assert.deepEqual(await readPredictor(tiny), predictor);
      assert.deepEqual(await readPredictor(tiny.directory), predictor);
      await writePredictor(tiny, drawnPredictor(TINY, 2));
      assert.deepEqual(await readPredictor(tiny), drawnPredictor(TINY, 2));
    });
  });

  it('is a safetensors file of which odmoe pack knows that it belongs to a pack', () => {
    fc.assert(
      fc.property(
        fc.record({
          hiddenSize: fc.integer({ min: 1, max: 9 }),
          experts: fc.integer({ min: 1, max: 5 }),
          units: fc.integer({ min: 1, max: 7 }),
          layers: fc.integer({ min: 1, max: 6 }),
          distances: fc
            .uniqueArray(fc.integer({ min: 0, max: 7 }), { minLength: 1, maxLength: 4 })
            .map((some) => some.sort((a, b) => a - b)),
        }),
        fc.nat(),
        (shape, seed) => {
          const bytes = predictorBytes('0'.repeat(64), drawnPredictor(shape, seed));
          const headerBytes = Number(bytes.readBigUInt64LE(0));
          const tensors = parseSafetensorsHeader(bytes.subarray(8, 8 + headerBytes), bytes.length, 'drawn');
          assert.equal(tensors.size, predictorTensors(shape).length);
          for (const { dtype, offsetBytes } of tensors.values()) assert.equal(dtype === 'F32' ? offsetBytes % 4 : 0, 0);
        },
      ),
    );
    assert.ok(isPackEntry(PREDICTOR_FILE) && isPackEntry(`${PREDICTOR_FILE}.1.partial`));
  });

  it('is refused with any bit flipped, and cut anywhere', async () => {
    await withTinyPack(async (tiny, path) => {
      await writePredictor(tiny, drawnPredictor(TINY, 3));
      const whole = await readFile(path);
      const refused = async (bytes: Uint8Array): Promise<void> => {
        await writeFile(path, bytes);
        const wanted = (thrown: unknown): boolean => {
          const { code, message } = thrown as { code: string; message: string };
          assert.match(message, remade);
          return code === 'PACK_CORRUPT' || code === 'MODEL_UNSUPPORTED';
        };
        await assert.rejects(readPredictor(tiny), wanted);
      };
      await fc.assert(
        fc.asyncProperty(fc.nat({ max: whole.length - 1 }), fc.nat({ max: 7 }), async (at, bit) => {
          const damaged = Buffer.from(whole);
          damaged[at] = (damaged[at] ?? 0) ^ (1 << bit);
          await refused(damaged);
        }),
        { numRuns: 300 },
      );
      await fc.assert(
        fc.asyncProperty(fc.nat({ max: whole.length - 1 }), async (length) => refused(whole.subarray(0, length))),
      );
      await refused(Buffer.concat([whole, Buffer.alloc(1)]));
    });
  });

  it('is refused if it is of another model, another version or other sizes', async () => {
    await withTinyPack(async (tiny, path) => {
      const { fingerprint } = tiny.manifest.source;
      const predictor = drawnPredictor(TINY, 4);
      await writeFile(path, predictorBytes('1'.repeat(64), predictor));
      await assert.rejects(readPredictor(tiny), refusal('PACK_CORRUPT', /was made for another model; "odmoe fit/));
      for (const change of [{ hiddenSize: 17 }, { experts: 4 }, { layers: 3 }]) {
        await writeFile(path, predictorBytes(fingerprint, drawnPredictor({ ...TINY, ...change }, 4)));
        await assert.rejects(readPredictor(tiny), refusal('PACK_CORRUPT', /sizes are not those of the model/));
      }
      await writeFile(path, predictorBytes(fingerprint, drawnPredictor({ ...TINY, distances: [1, 0] }, 4)));
      await assert.rejects(readPredictor(tiny), refusal('PACK_CORRUPT', /distances do not rise/));
      const beyond = { ...predictor, recall: [{ layer: 1, distance: 1, recall: 0.5 }] };
      await writeFile(path, predictorBytes(fingerprint, beyond));
      await assert.rejects(readPredictor(tiny), refusal('PACK_CORRUPT', /layers that the model lacks/));
      const later = predictorBytes(fingerprint, predictor).toString('latin1').replace('"1"', '"2"');
      await writeFile(path, Buffer.from(later, 'latin1'));
      await assert.rejects(
        readPredictor(tiny),
        refusal('MODEL_UNSUPPORTED', /version "2".*reads version 1.*odmoe fit/),
      );
      await rm(path);
      assert.equal(await readPredictor(tiny), null);
    });
  });

  it('takes no memory for the sizes that a damaged header announces', async () => {
    await withTinyPack(async (tiny, path) => {
      const { fingerprint } = tiny.manifest.source;
      const written = predictorBytes(fingerprint, drawnPredictor(TINY, 5));
      const huge = Buffer.from(written);
      huge.writeBigUInt64LE(1n << 62n, 0);
      await writeFile(path, huge);
      await assert.rejects(
        readPredictor(tiny),
        refusal('PACK_CORRUPT', /header of 4611686018427387904 bytes is longer/),
      );
      for (const units of [UNITS_LIMIT + 1, UNITS_LIMIT, Number.MAX_SAFE_INTEGER]) {
        const many = written.toString('latin1').replace('\\"units\\":4', `\\"units\\":${units}`);
        await writeFile(path, Buffer.from(many, 'latin1'));
        await assert.rejects(readPredictor(tiny), refusal('PACK_CORRUPT', remade));
      }
    });
  });

  it('is refused if a scale is not finite', async () => {
    await withTinyPack(async (tiny) => {
      const predictor = drawnPredictor(TINY, 6);
      (predictor.layers[1] as LayerMaps).headScales[2] = Number.NaN;
      await writePredictor(tiny, predictor);
      await assert.rejects(readPredictor(tiny), refusal('PACK_CORRUPT', /headScales of expert layer 1 are not finite/));
    });
  });
});
