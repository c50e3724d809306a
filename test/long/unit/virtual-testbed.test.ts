import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { paperProfileFile } from '../../../bench/paper/measure-set-ups.js';
import { PAPER_SET_UP, paperSetUp } from '../../../bench/paper/set-up.js';
import { VirtualCached, VirtualTestbed } from '../../../bench/paper/virtual-testbed.js';
import { deepenCheckpoint } from '../../../bench/deepen/deepen-checkpoint.js';
import { NATIVE_PACKING_TOOLS } from '../../../packs/packing/native-tools.js';
import { packCheckpoint } from '../../../packs/packing/pack-checkpoint.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';

const PROMPT = [1, 2, 3, 4];
const TOKENS = 5;

describe('the testbed on a virtual clock', function () {
  this.timeout(120_000);
  const { signal } = new AbortController();
  const profilePath = paperProfileFile('rtx3090-testbed');
  let directory = '';
  let packPath = '';

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-virtual-'));
    packPath = join(directory, 'pack');
    const checkpoint = join(directory, 'checkpoint');
    await deepenCheckpoint(join(packageRoot(), 'models', 'demo'), checkpoint, { layers: 32, signal });
    const raw = { codec: { codec: 'raw', level: null }, shards: 1, name: null, onDamagedPack: 'refuse' } as const;
    await packCheckpoint(checkpoint, packPath, { ...raw, signal }, NATIVE_PACKING_TOOLS);
  });

  after(async () => {
    await rm(directory, { recursive: true, force: true });
  });

  const answerOf = async (setUp = PAPER_SET_UP, profile = profilePath) => {
    const options = {
      packPath,
      workers: setUp.workers ?? 4,
      precision: 'int8',
      quantize: 'projections',
      setUp,
    } as const;
    const testbed = await VirtualTestbed.start({ ...options, profilePath: profile });
    try {
      return await testbed.answer(PROMPT, TOKENS, signal);
    } finally {
      await testbed.stop();
    }
  };

  it('gives the same tokens and times on every run, and the tokens of the whole model on one device', async () => {
    const [first, second] = [await answerOf(), await answerOf()];
    assert.equal(first.tokenIds.length, TOKENS);
    assert.deepEqual(first.finished, second.finished);
    const cached = await VirtualCached.start(packPath, profilePath, 256);
    const whole = await cached.answer(PROMPT, TOKENS, signal);
    cached.stop();
    assert.deepEqual(first.tokenIds, whole.tokenIds);
    // 4.9 tokens/s (OD-MoE table 2); a cluster is slower.
    assert.ok(Math.abs((whole.finished.timing?.decodeTokensPerS ?? 0) - 4.9) < 0.05);
    assert.ok((first.finished.timing?.decodeTokensPerS ?? 0) < 4.9);
  });

  for (const [profile, expertStorage] of [
    ['rtx3090-whole-fp32', 'fp32'],
    ['rtx3090-whole-bf16', 'bf16'],
  ] as const) {
    it(`takes what the machine of ${profile} takes that holds the whole model, where nothing is drafted`, async () => {
      const machine = await VirtualCached.start(packPath, paperProfileFile(profile), 256);
      const whole = await machine.answer(PROMPT, TOKENS, signal);
      machine.stop();
      const parts = await answerOf(
        paperSetUp({ workers: 1, slots: 8, prefillOverlap: true, expertStorage }),
        paperProfileFile(profile),
      );
      assert.deepEqual(parts.tokenIds, whole.tokenIds);
      const [partsMs, wholeMs] = [parts, whole].map(({ finished }) => finished.timing?.tpotMs ?? Number.NaN);
      assert.ok(Math.abs((partsMs ?? 0) / (wholeMs ?? 0) - 1) < 0.01, `${partsMs} ms a token, and ${wholeMs}`);
    });
  }

  it('is faster with steps beyond the paper, and gives the same tokens', async () => {
    const plain = await answerOf();
    const all = await answerOf(
      paperSetUp({ optimistic: true, draftRows: 'auto', spread: 'all', expertStorage: 'fixed4', slots: 2 }),
    );
    assert.deepEqual(all.tokenIds, plain.tokenIds);
    assert.ok((all.finished.timing?.tpotMs ?? 0) < (plain.finished.timing?.tpotMs ?? 0));
  });

  it('computes a repeated prompt again', async () => {
    const options = { packPath, workers: 4, precision: 'int8', quantize: 'projections' } as const;
    const testbed = await VirtualTestbed.start({ ...options, setUp: PAPER_SET_UP, profilePath });
    const prompt = Array.from({ length: 40 }, (_, index) => 3 + index);
    try {
      const first = await testbed.answer(prompt, 2, signal);
      const second = await testbed.answer(prompt, 3, signal);
      const [firstMs, secondMs] = [first, second].map(({ finished }) => finished.timing?.ttftMs ?? Number.NaN);
      assert.ok(Math.abs((firstMs ?? 0) - (secondMs ?? 0)) < 1e-6, `${firstMs} ms, then ${secondMs}`);
    } finally {
      await testbed.stop();
    }
  });

  it('can be cancelled by its user', async () => {
    const options = {
      packPath,
      workers: 1,
      precision: 'int8',
      quantize: 'projections',
      setUp: PAPER_SET_UP,
      profilePath,
    } as const;
    const testbed = await VirtualTestbed.start(options);
    const interrupted = new AbortController();
    const answer = testbed.answer(PROMPT, 256, interrupted.signal);
    setTimeout(() => interrupted.abort(), 50);
    await assert.rejects(answer, { code: 'CANCELLED' });
    await testbed.stop();
  });
});
