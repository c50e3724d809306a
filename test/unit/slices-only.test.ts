import assert from 'node:assert/strict';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { describeModel, NO_PREDICTOR } from '../../packs/describe-model.js';
import { isSlicesOnly } from '../../packs/format/manifest.js';
import { openAnyPack, openPack } from '../../packs/format/open-pack.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { NO_SLICES, openSlices } from '../../packs/slices/open-slices.js';
import { verifySlices } from '../../packs/slices/verify-slices.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { finiteTensors, slice } from './sliced-pack.js';
import { withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { directoryDigests, failingAt, pack, refusal, withCheckpoint } from './tiny-pack.js';

const ONLY = { slicesOnly: true, tools: NATIVE_SLICING_TOOLS } as const;

async function sliceOnly(checkpoint: string, output: string): Promise<string> {
  await pack(checkpoint, output, ONLY);
  return (await slice(output, 'sliced84', { checkpoint: await openCheckpoint(checkpoint) })).digest;
}

describe('a pack of slices only', () => {
  it('has the same slices as a pack with lossless parts, and no file of those', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const lossless = `${output}-lossless`;
      await pack(checkpoint, lossless, { tools: NATIVE_SLICING_TOOLS });
      const { digest } = await slice(lossless);
      assert.equal(await sliceOnly(checkpoint, output), digest);
      const { 'manifest.json': manifest, ...files } = await directoryDigests(output);
      const { 'manifest.json': other, ...all } = await directoryDigests(lossless);
      assert.notEqual(manifest, other);
      assert.deepEqual(files, Object.fromEntries(Object.entries(all).filter(([name]) => !name.startsWith('experts-'))));
      const fingerprintIn = async (directory: string): Promise<string> =>
        (await openAnyPack(directory)).manifest.source.fingerprint;
      assert.equal(await fingerprintIn(output), await fingerprintIn(lossless));
    }, finiteTensors());
  });

  it('is not opened for exact answers, and the error says that it holds slices only', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      await sliceOnly(checkpoint, output);
      for (const open of [openPack, openModelSource, openServedPack]) {
        await assert.rejects(open(output), refusal('PACK_INCOMPLETE', /in slices only.*pack .* without --only/));
      }
      const opened = await openAnyPack(output);
      assert.ok(isSlicesOnly(opened.manifest));
      const slices = await openSlices(output);
      assert.deepEqual(await verifySlices(slices, null, NATIVE_SLICING_TOOLS), []);
      const slots = { shippedBytes: 1, slicedBytes: () => ({ upper: 2, both: 3 }) };
      const beside = { slices: { ...NO_SLICES, slices }, shadowRecall: null, predictor: NO_PREDICTOR };
      const { pack: facts, expertBytes, slotBytes } = describeModel(opened, slots, beside);
      assert.deepEqual([facts?.slicesOnly, facts?.slices?.pair, expertBytes], [true, '8,4', 0]);
      assert.deepEqual([slotBytes, facts?.slices?.slotBytes], [null, { upper: 2, both: 3 }]);
    }, finiteTensors());
  });

  it('keeps the biases of experts', async () => {
    await withTemporaryDirectory(async (directory) => {
      const checkpoint = join(packageRoot(), 'test', 'fixtures', 'gptoss');
      await sliceOnly(checkpoint, directory);
      const { biases } = (await openSlices(directory)).expert(1, 2);
      assert.ok(biases !== null);
      assert.deepEqual(biases, (await openCheckpoint(checkpoint)).expert(1, 2).biases);
    });
  });

  it('is unfinished until its slices are, and the same commands finish it', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const digest = await sliceOnly(checkpoint, `${output}-whole`);
      await assert.rejects(pack(checkpoint, output, { ...ONLY, openFile: await failingAt(0.2, checkpoint) }));
      await assert.rejects(openSlices(output), refusal('PACK_INCOMPLETE', /not finished/));
      await pack(checkpoint, output, ONLY);
      await assert.rejects(openSlices(output), refusal('PACK_INCOMPLETE', /make the slices/));
      assert.equal(await sliceOnly(checkpoint, output), digest);
      assert.deepEqual(await directoryDigests(output), await directoryDigests(`${output}-whole`));
    }, finiteTensors());
  });

  it('has a damaged file made again from the checkpoint, and from nothing else', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      await sliceOnly(checkpoint, output);
      const whole = await directoryDigests(output);
      await rm(join(output, 'slices-00001.upper.bin'));
      await assert.rejects(slice(output), refusal('USAGE', /holds slices only.*give the checkpoint/));
      await sliceOnly(checkpoint, output);
      assert.deepEqual(await directoryDigests(output), whole);
    }, finiteTensors());
  });

  it('is refused slices of another checkpoint', async () => {
    const tensors = finiteTensors();
    await withCheckpoint(async (checkpoint, output) => {
      await pack(checkpoint, output, ONLY);
      tensors.at(-1)?.data.fill(0);
      await writeTinyCheckpoint(`${checkpoint}-2`, tensors);
      await assert.rejects(
        slice(output, 'sliced84', { checkpoint: await openCheckpoint(`${checkpoint}-2`) }),
        refusal('PACK_CORRUPT', /not those of the pack's weights/),
      );
      assert.ok(!(await readdir(output)).includes('slices.json'));
    }, tensors);
  });

  it('and a pack with lossless parts are not made into one another', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      await sliceOnly(checkpoint, output);
      await assert.rejects(pack(checkpoint, output), refusal('USAGE', /whole pack already, and it holds slices only/));
      await pack(checkpoint, `${output}-lossless`);
      await assert.rejects(pack(checkpoint, `${output}-lossless`, ONLY), refusal('USAGE', /experts' lossless parts/));
      await assert.rejects(
        pack(checkpoint, `${output}-3`, { ...ONLY, consume: true }),
        refusal('USAGE', /--consume cannot go with --only/),
      );
    }, finiteTensors());
  });
});
