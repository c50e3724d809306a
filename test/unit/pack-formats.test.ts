import assert from 'node:assert/strict';
import { cp, open, readdir, stat, truncate } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { formatLine } from '../../cli/output/format-line.js';
import { describeModel } from '../../packs/describe-model.js';
import { openPack } from '../../packs/format/open-pack.js';
import { openSourceCheckpoint } from '../../packs/gguf/open-source-checkpoint.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packCheckpoint } from '../../packs/packing/pack-checkpoint.js';
import { NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { isQuantizedSplit } from '../../shared/model/weight-dtype.js';
import { fixtureFolder, formatFixtures } from '../integration/harness/test-models.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';
import { directoryDigests, failingAt, pack, refusal } from './tiny-pack.js';

type Fixture = ReturnType<typeof formatFixtures>[number];

/** Calls `use` with a copy of the fixture: its folder, or the path of its (first) GGUF file. */
async function withCopy(fixture: Fixture, use: (model: string, directory: string) => Promise<void>): Promise<void> {
  await withTemporaryDirectory(async (directory) => {
    const copy = join(directory, basename(fixture));
    await cp(fixtureFolder(fixture), copy, { recursive: true });
    const [gguf] = (await readdir(copy)).filter((name) => name.endsWith('.gguf')).sort();
    await use(gguf === undefined ? copy : join(copy, gguf), directory);
  });
}

function packWhole(model: string, output: string) {
  const options = { codec: { codec: 'huffman', level: null }, shards: 4, name: null, onDamagedPack: 'refuse' } as const;
  return packCheckpoint(model, output, options, NATIVE_PACKING_TOOLS);
}

const GGUF: readonly Fixture[] = ['fixtures/formats/gguf-qwen3moe-q4_k_m', 'fixtures/formats/gguf-qwen3moe-bf16-split'];

describe('packing a GGUF file', () => {
  for (const fixture of GGUF) {
    it(`continues with the unfinished files, to the same bytes: ${basename(fixture)}`, async () => {
      await withCopy(fixture, async (model, directory) => {
        const output = join(directory, 'pack');
        const reference = await pack(model, `${output}-whole`);
        await assert.rejects(pack(model, output, { openFile: await failingAt(0.9, model) }));
        await assert.rejects(openModelSource(output), refusal('PACK_INCOMPLETE', /run odmoe pack again/));
        const resumed = await pack(model, output);
        assert.ok(resumed.resumedFiles > 0, `${resumed.resumedFiles} files were kept`);
        assert.equal(resumed.digest, reference.digest);
        assert.deepEqual(await directoryDigests(output), await directoryDigests(`${output}-whole`));
      });
    });
  }
});

describe('a pack of experts in several formats', () => {
  it('names the codec raw, because none codes them, and the formats with their shares', async () => {
    await withTemporaryDirectory(async (directory) => {
      const [output, fixture] = [join(directory, 'pack'), fixtureFolder('fixtures/formats/gguf-qwen3moe-q4_k_m')];
      const outcome = await packWhole(join(fixture, 'qwen3moe-q4_k_m.gguf'), output);
      const opened = await openPack(output);
      assert.deepEqual([outcome.codec, opened.manifest.codec], [{ codec: 'raw', level: null }, 'raw']);
      assert.equal((await packWhole(join(fixture, 'qwen3moe-q4_k_m.gguf'), output)).alreadyWhole, true);
      const slots = { shippedBytes: 1, slicedBytes: () => ({ upper: 2, both: 3 }) };
      const model = describeModel(opened, slots);
      assert.equal(model.shippedFormat, 'mixed');
      assert.equal(formatLine(model), 'q4_k 83 %, q6_k 17 %');
    });
  });
});

/** Fixtures whose experts are plain values. */
const PLAIN: ReadonlySet<Fixture> = new Set([
  'fixtures/formats/gguf-qwen3moe-bf16-split',
  'fixtures/formats/gguf-qwen3moe-f16',
]);

describe('a damaged file', () => {
  for (const fixture of formatFixtures()) {
    it(`that was cut is an error in words: ${basename(fixture)}`, async () => {
      await withCopy(fixture, async (model, directory) => {
        const weights = model.endsWith('.gguf') ? model : join(model, 'model.safetensors');
        const { size } = await stat(weights);
        for (const bytes of [size - 1, Math.floor(size * 0.6), 100, 3]) {
          await truncate(weights, bytes);
          await assert.rejects(packWhole(model, join(directory, 'pack')), { code: 'MODEL_CORRUPT' });
        }
      });
    });

    // Values are not checked: that would take as long as reading them.
    if (PLAIN.has(fixture)) continue;

    it(`whose scales are no numbers is an error in words: ${basename(fixture)}`, async () => {
      await withCopy(fixture, async (model, directory) => {
        const checkpoint = await openSourceCheckpoint(model);
        const { split, chunks } = checkpoint.expert(0, 1).gate;
        assert.ok(isQuantizedSplit(split), split);
        const scales = chunks.find(({ plane }) => plane === 1) ?? chunks[0] ?? assert.fail();
        // All bits set is NaN as FP16, BF16, FP32, E4M3 and E8M0.
        const file = await open(scales.path, 'r+');
        await file.write(Buffer.alloc(scales.storedBytes, 0xff), 0, scales.storedBytes, scales.offsetBytes);
        await file.close();
        await assert.rejects(
          packWhole(model, join(directory, 'pack')),
          refusal('MODEL_CORRUPT', /scale|is not a number/),
        );
      });
    });
  }
});
