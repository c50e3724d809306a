import assert from 'node:assert/strict';
import { join } from 'node:path';
import { paperSetUp } from '../../../bench/paper/set-up.js';
import { Testbed } from '../../../bench/paper/testbed.js';
import type { CollectedAnswer } from '../../../cli/client/measured-request.js';
import { testbedPrompts } from '../../../bench/paper/measure-set-ups.js';
import { packForServing } from '../../../packs/pack-for-serving.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { loadDeviceProfile } from '../../../engine/emulation/load-device-profile.js';
import { attendMs } from '../../../engine/emulation/device-profile.js';
import { nodeTimes } from '../../../engine/emulation/node-times.js';
import { loadTokenizer } from '../../../shared/language/tokenizer/load-tokenizer.js';
import { RUNTIME } from '../../wall.js';

const TESTBED = join(packageRoot(), 'bench', 'profiles', 'rtx3090-testbed.yaml');
const TOKENS = 4;
const LAYERS = 8;

describe('an emulated testbed', function () {
  this.timeout(240_000);
  const { signal } = new AbortController();
  let packPath = '';
  let prompt: number[] = [];

  async function answer(profilePath: string | null): Promise<CollectedAnswer> {
    // The model that really runs has 8 layers; those are given the profiled one's times.
    const testbed = await Testbed.start(
      { packPath, workers: 2, precision: 'int8', quantize: 'projections', setUp: paperSetUp({}), profilePath },
      signal,
    );
    try {
      return await testbed.answer(prompt, TOKENS, signal);
    } finally {
      await testbed.stop();
    }
  }

  before(async () => {
    packPath = await packForServing(join(packageRoot(), 'models', 'demo'), null, RUNTIME);
    prompt = testbedPrompts(await loadTokenizer(packPath), 16, 1)[0] ?? [];
  });

  it('gives the answer of a plain cluster, in no less than the profiled time and within the memory', async () => {
    const [real, emulated] = [await answer(null), await answer(TESTBED)];
    assert.deepEqual(emulated.tokenIds, real.tokenIds);
    const profile = loadDeviceProfile(TESTBED);
    const main = nodeTimes(profile, 'main', 'fp32');
    const worker = nodeTimes(profile, 'worker', 'fp32');
    const hiddenMs = (profile.model.shape.hiddenSize * 4 * 1000) / profile.network.bytesPerS;
    // Attention, a hidden state there, an expert, a hidden state back; with two workers one load a layer at least.
    const dense = attendMs(main, 0, Int32Array.of(0));
    const layerMs = Math.max(
      dense + worker.expert.weightsMs + 2 * hiddenMs + profile.network.roundTripMs,
      worker.loadMs,
    );
    assert.ok((emulated.finished.timing?.tpotMs ?? 0) > LAYERS * layerMs * 0.999, 'faster than the profiled devices');
    const workers = emulated.finished.nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');
    for (const { deviceMemoryHighWaterBytes } of workers) {
      assert.equal(deviceMemoryHighWaterBytes, worker.slotBytes + worker.slotSharedBytes);
    }
  });

  it('ends its daemons when it is interrupted', async () => {
    const controller = new AbortController();
    const starting = Testbed.start(
      { packPath, workers: 2, precision: 'int8', quantize: 'projections', setUp: paperSetUp({}), profilePath: null },
      controller.signal,
    );
    controller.abort();
    await assert.rejects(starting, { code: 'CANCELLED' });
  });
});
