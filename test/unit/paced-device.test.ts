import assert from 'node:assert/strict';
import type { DevicePace } from '../../engine/emulation/device-pace.js';
import { FROM_STORAGE, PLAIN_LOADER, type Device, type Pass } from '../../native/index.js';
import { type OperatorTime, operatorMs } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { FIXTURE_SHAPE, bits, expertSource, loadFixture, openTestDevice } from './native-test-model.js';
import {
  BYTES,
  DENSE_LAYER,
  EXPERT_SHAPE,
  PROMPT,
  TIMES,
  begin,
  codeIs,
  expertsMs,
  near,
  onPaced,
  realRun,
  run,
} from './paced-device-setting.js';

const { expertLayers: layers, experts, hiddenSize, expertsPerToken } = FIXTURE_SHAPE;
const ROW_BLOCK_POSITIONS = 256;
const NOTHING: OperatorTime = { overheadMs: 0, weightsMs: 0, rowMs: 0 };

/** All operations take no time: events on a virtual clock do not depend on the speed of the arithmetic. */
const TIMELESS: DevicePace = {
  times: {
    attendLayers: [],
    layersBehind: [],
    router: NOTHING,
    expert: NOTHING,
    lmHead: NOTHING,
    loadMs: 0,
    exponentShare: 0.5,
    recoverMs: 0,
  },
  memory: null,
};

describe('a paced device computes', () => {
  it('the same results to the bit, each layer in exactly its time', async () => {
    const expected = await realRun(PROMPT);
    await onPaced(async (device, runtime) => {
      const actual = await run(await loadFixture(device, { experts: true }), PROMPT, () => runtime.nowMs());
      assert.deepEqual(bits(actual.logits), bits(expected.logits));
      let timeMs = 0;
      assert.equal(actual.gates.length, layers);
      actual.gates.forEach((gate, layer) => {
        assert.deepEqual(gate.experts, expected.gates[layer]?.experts);
        timeMs += operatorMs(DENSE_LAYER, PROMPT.length);
        near(gate.atMs, timeMs);
        timeMs += expertsMs(gate.experts);
      });
      near(actual.forwardMs, timeMs);
      near(actual.logitsMs, operatorMs(TIMES.lmHead, 1));
      assert.equal(device.info().backend, 'emulated');
    });
  });

  it('one operation after the other, in the requested order', async () => {
    await onPaced(async (device, runtime) => {
      const model = await loadFixture(device, { experts: true });
      const passes = [model.createPass(1), model.createPass(1)] as const;
      for (const pass of passes) await begin(pass, model.createSequence(), PROMPT.slice(0, 1));
      const ends: number[] = [];
      const attend = async (pass: Pass): Promise<void> => {
        await pass.attend(0, new Uint8Array(4 * hiddenSize));
        ends.push(runtime.nowMs());
      };
      await Promise.all(passes.map(attend));
      assert.deepEqual(ends, [3, 6]);
      const together = [passes[0].attend(1, new Uint8Array(1)), attend(passes[0])];
      for (const refused of await Promise.allSettled(together)) {
        assert.ok(refused.status === 'rejected' && codeIs('INTERNAL')(refused.reason));
      }
    });
  });

  it('experts in slots with the same results, and loads one after the other over one link', async () => {
    const outputs: Uint8Array[] = [];
    const hidden = new Uint8Array(Float32Array.from({ length: 4 * hiddenSize }, (_, i) => Math.sin(i)).buffer);
    const body = async (device: Device, nowMs: () => number): Promise<number[]> => {
      const slots = device.createExpertSlots(EXPERT_SHAPE, 2, 4, PLAIN_LOADER);
      const times: number[] = [];
      await Promise.all(
        [0, 1].map(async (slot) => {
          const outcome = await slots.load(slot, slots.register(expertSource(1, slot)), FROM_STORAGE);
          assert.ok(outcome.loaded);
          times.push(nowMs());
        }),
      );
      const output = [0, 1].map(() => new Uint8Array(hidden.length));
      await Promise.all(output.map((bytes, slot) => slots.execute(slot, 4, hidden, bytes)));
      outputs.push(...output);
      slots.dispose();
      return [...times, nowMs()];
    };
    const real = openTestDevice();
    await body(real, () => 0);
    real.dispose();
    await onPaced(async (device, runtime) => {
      assert.deepEqual(await body(device, () => runtime.nowMs()), [12, 24, 24 + 2 * operatorMs(TIMES.expert, 4)]);
    });
    const [first, second, firstPaced, secondPaced] = outputs.map(bits);
    assert.deepEqual(firstPaced, first);
    assert.deepEqual(secondPaced, second);
    assert.notDeepEqual(first, second);
  });

  it('in no time at all where the profile sets none', async () => {
    const expected = await realRun(PROMPT);
    await onPaced(async (device, runtime) => {
      const model = await loadFixture(device, { experts: true });
      const actual = await run(model, PROMPT, () => runtime.nowMs());
      assert.deepEqual(bits(actual.logits), bits(expected.logits));
      const slots = device.createExpertSlots(EXPERT_SHAPE, 1, 4, PLAIN_LOADER);
      assert.ok((await slots.load(0, slots.register(expertSource(0, 0)), FROM_STORAGE)).loaded);
      assert.equal(runtime.nowMs(), 0);
    }, TIMELESS);
  });
});

describe('a paced device holds', () => {
  const modelBytes = 10_000 + layers * (1000 + experts * 300);
  const rowBlockBytes = layers * ROW_BLOCK_POSITIONS * 2;

  it('the memory of the profiled model, and releases it', async () => {
    await onPaced(async (device) => {
      const model = await loadFixture(device, { experts: true });
      assert.equal(device.info().usedBytes, modelBytes);
      const pass = model.createPass(1);
      const sequence = model.createSequence();
      await begin(pass, sequence, PROMPT.slice(0, 1));
      assert.equal(device.info().usedBytes, modelBytes + rowBlockBytes);
      sequence.dispose();
      assert.equal(device.info().usedBytes, modelBytes);
      const slots = device.createExpertSlots(EXPERT_SHAPE, 3, 4, PLAIN_LOADER);
      assert.equal(slots.slotBytes, 200);
      assert.equal(device.info().usedBytes, modelBytes + 3 * 200 + 50);
      for (const handle of [slots, pass, model, model]) handle.dispose();
      assert.equal(device.info().usedBytes, 0);
      assert.equal(device.info().highWaterBytes, modelBytes + Math.max(rowBlockBytes, 650));
    });
  });

  it('upper slices in each slot of sliced experts, and lower ones in those that take them', async () => {
    const memory = { bytes: BYTES, budgetBytes: 2 * 200 + 50 };
    await onPaced(
      async (device) => {
        const shape = { ...EXPERT_SHAPE, format: 'sliced84' } as const;
        const { slotBytes, lowerBytes } = device.expertSlotBytes(shape, 4, PLAIN_LOADER);
        assert.deepEqual([slotBytes, lowerBytes], [189, 11]);
        const slots = device.createExpertSlots(shape, 2, 4, PLAIN_LOADER);
        const used = (): number => device.info().usedBytes - 50;
        assert.deepEqual([slots.slotBytes, used()], [189, 2 * 189]);
        for (const slot of [0, 0, 1]) slots.takeLower(slot);
        assert.equal(used(), 2 * 200);
        slots.letGo(0);
        assert.equal(used(), 200, 'the lower slices go, too');
        slots.take(0);
        assert.equal(used(), 200 + 189);
        for (const slot of [1, 1]) slots.letGoLower(slot);
        assert.equal(used(), 2 * 189);
      },
      { memory },
    );
    await onPaced(async (device) => {
      const slots = device.createExpertSlots(EXPERT_SHAPE, 1, 4, PLAIN_LOADER);
      const takeLower = (): void => {
        slots.takeLower(0);
      };
      assert.throws(takeLower, codeIs('INTERNAL'), 'its experts are not sliced');
    });
  });

  it('no more than its budget', async () => {
    const memory = { bytes: BYTES, budgetBytes: modelBytes + rowBlockBytes };
    await onPaced(
      async (device) => {
        const model = await loadFixture(device, { experts: true });
        const pass = model.createPass(1);
        await begin(pass, model.createSequence(), PROMPT.slice(0, 1));
        const second = model.createSequence();
        await assert.rejects(begin(pass, second, PROMPT.slice(0, 1)), codeIs('DEVICE_OUT_OF_MEMORY'));
        assert.equal(device.info().usedBytes, modelBytes + rowBlockBytes);
        assert.throws(
          () => device.createExpertSlots(EXPERT_SHAPE, 1, 4, PLAIN_LOADER),
          (thrown) => codeIs('DEVICE_OUT_OF_MEMORY')(thrown) && /profiled model needs 50 bytes/.test(String(thrown)),
        );
        assert.equal(device.info().usedBytes, modelBytes + rowBlockBytes);
      },
      { memory },
    );
    await onPaced(
      async (device) => {
        await assert.rejects(loadFixture(device, { experts: true }), codeIs('DEVICE_OUT_OF_MEMORY'));
      },
      { memory: { bytes: BYTES, budgetBytes: modelBytes - 1 } },
    );
  });
});

describe('a cancelled forward of a paced device', () => {
  it('ends at once, and the pass can begin again', async () => {
    const token = PROMPT.slice(0, 1);
    const expected = await realRun(token);
    await onPaced(async (device, runtime) => {
      const model = await loadFixture(device, { experts: true });
      const sequence = model.createSequence();
      const pass = model.createPass(1);
      pass.cancel(); // nothing is under way: the next one is not touched
      await begin(pass, sequence, token);
      const seen: number[] = [];
      const forward = pass.forward((layer) => {
        seen.push(layer);
        runtime.after(1, () => {
          pass.cancel();
        });
      });
      assert.throws(() => sequence.truncate(0), codeIs('INTERNAL'));
      await assert.rejects(forward, codeIs('CANCELLED'));
      assert.deepEqual(seen, [0]);
      near(runtime.nowMs(), operatorMs(DENSE_LAYER, 1) + 1);
      assert.equal(sequence.length, 0);
      pass.cancel();
      sequence.truncate(0);
      await begin(pass, sequence, token);
      const startMs = runtime.nowMs();
      await pass.forward(null);
      near(
        runtime.nowMs() - startMs,
        layers * (operatorMs(DENSE_LAYER, 1) + expertsPerToken * operatorMs(TIMES.expert, 1)),
      );
      assert.equal(sequence.length, 1);
      assert.deepEqual(bits(await pass.logits(Int32Array.of(0))), bits(expected.logits));
    });
  });

  it('ends at once while the real device computes, and in a wait of an hour', async () => {
    const slow = { ...TIMES, attendLayers: [[{ overheadMs: 3_600_000, weightsMs: 0, rowMs: 0, context: [] }]] };
    await onPaced(
      async (device, runtime) => {
        const model = await loadFixture(device, { experts: true });
        const pass = model.createPass(1);
        const sequence = model.createSequence();
        for (const cancelAfterMs of [0, 500]) {
          await begin(pass, sequence, PROMPT.slice(0, 1));
          const startMs = runtime.nowMs();
          const forward = pass.forward(() => assert.fail('a layer was reported before it was done'));
          if (cancelAfterMs === 0) pass.cancel();
          else runtime.after(cancelAfterMs, () => pass.cancel());
          await assert.rejects(forward, codeIs('CANCELLED'));
          assert.equal(runtime.nowMs() - startMs, cancelAfterMs);
          assert.equal(sequence.length, 0);
        }
        assert.equal(runtime.openCounts.timers, 0);
      },
      { times: slow },
    );
  });

  it('rejects at its end with the error of a listener', async () => {
    await onPaced(async (device, runtime) => {
      const model = await loadFixture(device, { experts: true });
      const pass = model.createPass(1);
      await begin(pass, model.createSequence(), PROMPT.slice(0, 1));
      const forward = pass.forward(() => {
        throw new OdmoeError('USAGE', 'not today');
      });
      await assert.rejects(forward, codeIs('USAGE'));
      near(runtime.nowMs(), layers * (operatorMs(DENSE_LAYER, 1) + expertsPerToken * operatorMs(TIMES.expert, 1)));
    });
  });
});
