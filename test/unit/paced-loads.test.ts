import assert from 'node:assert/strict';
import { FROM_STORAGE, PLAIN_LOADER, type LoadOutcome, type LoadRequest } from '../../native/index.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { FIXTURE_SHAPE, expertSource } from './native-test-model.js';
import { EXPERT_SHAPE, codeIs, near, onPaced } from './paced-device-setting.js';
import { perPart } from '../../shared/model/expert-parts.js';

const { hiddenSize } = FIXTURE_SHAPE;

describe('a load on a paced device', () => {
  const outcomes = async (
    act: (
      load: (slot: number) => Promise<LoadOutcome>,
      cancel: (slot: number) => void,
      runtime: VirtualRuntime,
    ) => Promise<void>,
  ): Promise<void> =>
    onPaced(async (device, runtime) => {
      const slots = device.createExpertSlots(EXPERT_SHAPE, 3, 4, PLAIN_LOADER);
      await act(
        (slot) => slots.load(slot, slots.register(expertSource(0, slot)), FROM_STORAGE),
        (slot) => {
          slots.cancel(slot);
        },
        runtime,
      );
      slots.dispose();
      await runtime.sleep(100);
      assert.deepEqual(runtime.openCounts, { timers: 0, turns: 0, works: 0 });
    });

  it('settles at once when cancelled and frees the link, however far the real load is', async () => {
    await outcomes(async (load, cancel, runtime) => {
      const [first, second] = [load(0), load(1)];
      // The real load of a tiny expert ended long before.
      await runtime.sleep(11);
      await runtime.outside(() => new Promise((resolve) => setTimeout(resolve, 20)));
      cancel(0);
      const { loaded, cached, loadMs } = await first;
      assert.deepEqual([loaded, cached.exponent, loadMs, runtime.nowMs()], [false, false, 11, 11]);
      assert.ok((await second).loaded);
      near(runtime.nowMs(), 23);
      assert.ok((await load(0)).loaded, 'the slot is free for another load');
      near(runtime.nowMs(), 35);
    });
  });

  it('is not run when it is cancelled at the moment of its beginning', async () => {
    await outcomes(async (load, cancel, runtime) => {
      const first = load(0);
      cancel(0);
      const second = load(0);
      assert.equal((await first).loaded, false);
      assert.equal(runtime.nowMs(), 0);
      assert.ok((await second).loaded);
      near(runtime.nowMs(), 12);
    });
  });

  it('is refused where the slot cannot take it', async () => {
    await onPaced(async (device) => {
      const slots = device.createExpertSlots(EXPERT_SHAPE, 1, 1, PLAIN_LOADER);
      const [hidden, output] = [new Uint8Array(4 * hiddenSize), new Uint8Array(4 * hiddenSize)];
      await assert.rejects(slots.execute(0, 1, hidden, output), codeIs('INTERNAL'));
      await assert.rejects(slots.load(1, slots.register(expertSource(0, 0)), FROM_STORAGE), codeIs('INTERNAL'));
      const load = slots.load(0, slots.register(expertSource(0, 0)), FROM_STORAGE);
      await assert.rejects(slots.load(0, slots.register(expertSource(0, 0)), FROM_STORAGE), codeIs('INTERNAL'));
      await assert.rejects(slots.execute(0, 1, hidden, output), codeIs('INTERNAL'));
      assert.ok((await load).loaded);
      const execute = slots.execute(0, 1, hidden, output);
      await assert.rejects(slots.load(0, slots.register(expertSource(0, 0)), FROM_STORAGE), codeIs('INTERNAL'));
      await execute;
    });
  });

  it('fails at the time at which it would have ended', async () => {
    await onPaced(async (device, runtime) => {
      const slots = device.createExpertSlots(EXPERT_SHAPE, 1, 1, PLAIN_LOADER);
      const source = expertSource(0, 0);
      const gate = {
        ...source.gate,
        chunks: source.gate.chunks.map((chunk) => ({ ...chunk, path: '/nowhere/at/all' })),
      };
      await assert.rejects(slots.load(0, slots.register({ ...source, gate }), FROM_STORAGE), codeIs('STORAGE_FAILED'));
      near(runtime.nowMs(), 12);
    });
  });

  it('takes time on the link for its read bytes only', async () => {
    await onPaced(async (device, runtime) => {
      const sizes = { expertBytes: perPart(() => 2 ** 16) };
      const loader = { ...PLAIN_LOADER, ...sizes, entries: perPart(() => 1) };
      const slots = device.createExpertSlots(EXPERT_SHAPE, 1, 1, loader);
      assert.equal(device.info().usedBytes, 200 + 50 + 7 + 11);
      const tookMs = async (request: LoadRequest): Promise<number> => {
        const startMs = runtime.nowMs();
        const outcome = await slots.load(0, slots.register(expertSource(0, 0)), request);
        assert.ok(outcome.loaded);
        assert.equal(outcome.loadMs, runtime.nowMs() - startMs);
        return outcome.loadMs;
      };
      const keep = { from: 'storage', entry: 0 } as const;
      const kept = { from: 'entry', entry: 0 } as const;
      near(await tookMs({ ...FROM_STORAGE, parts: perPart(() => keep) }), 12);
      near(await tookMs({ ...FROM_STORAGE, parts: { ...FROM_STORAGE.parts, exponent: kept } }), 9);
      near(await tookMs({ ...FROM_STORAGE, parts: { ...FROM_STORAGE.parts, signMantissa: kept } }), 3);
      near(await tookMs({ ...FROM_STORAGE, parts: perPart(() => kept) }), 1);
    });
  });
});
