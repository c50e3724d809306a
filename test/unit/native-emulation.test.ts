import assert from 'node:assert/strict';
import {
  FROM_STORAGE,
  PLAIN_LOADER,
  eventTimeMs,
  openDevice,
  waitUntil,
  type Device,
  type DeviceEmulation,
  type Model,
  type Pass,
  type Sequence,
} from '../../native/index.js';
import { operatorMs } from '../../shared/emulation/index.js';
import { OdmoeError, type ErrorCode } from '../../shared/errors/index.js';
import {
  FIXTURE_SHAPE,
  bits,
  expertSource,
  fixtureReference,
  loadFixture,
  openTestDevice,
} from './native-test-model.js';

const { layers, experts, hiddenSize, intermediateSize, expertsPerToken } = FIXTURE_SHAPE;
const NOTHING = { overheadMs: 0, weightsMs: 0, rowMs: 0 };
const EMULATION: DeviceEmulation = {
  denseLayer: { overheadMs: 1, weightsMs: 2, rowMs: 0.75 },
  expert: { overheadMs: 0.5, weightsMs: 1, rowMs: 1.5 },
  lmHead: { overheadMs: 1, weightsMs: 3, rowMs: 1 },
  loadMs: 12,
  outerBytes: 10_000,
  denseLayerBytes: 1000,
  expertBytes: 300,
  slotBytes: 200,
  slotSharedBytes: 50,
  keyValueRowBytes: 2,
};
const BLOCK_POSITIONS = 256;
const EXPERT_SHAPE = { hiddenSize, intermediateSize, format: 'bf16' } as const;
const PROMPT = (fixtureReference.references[0]?.prompt_token_ids ?? []).slice(0, 5);

function openEmulated(changes: Partial<DeviceEmulation> = {}, budgetBytes = 0): Device {
  const options = { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes } as const;
  return openDevice(options, { ...EMULATION, ...changes });
}

const codeIs = (code: ErrorCode) => (thrown: unknown) => thrown instanceof OdmoeError && thrown.code === code;

const nowMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** As native's clock counts: in whole nanoseconds, which a number of milliseconds does not hold exactly. */
const NANOSECOND_MS = 1e-6;

async function begin(pass: Pass, sequence: Sequence, tokens: readonly number[]): Promise<void> {
  const positions = Int32Array.from(tokens, (_, i) => sequence.length + i);
  await pass.begin([sequence], new Int32Array(tokens.length), positions, Int32Array.from(tokens));
}

interface Gate {
  layer: number;
  experts: number[];
  atMs: number;
}

interface Run {
  gates: Gate[];
  /** From being asked for. */
  forwardMs: number;
  logitsMs: number;
  logits: Float32Array;
}

async function run(model: Model, tokens: readonly number[]): Promise<Run> {
  const sequence = model.createSequence();
  const pass = model.createPass(tokens.length);
  await begin(pass, sequence, tokens);
  const gates: Gate[] = [];
  const startMs = eventTimeMs();
  await pass.forward((layer, choice) => {
    gates.push({ layer, experts: [...choice.experts], atMs: nowMs() - startMs });
  });
  const forwardMs = nowMs() - startMs;
  const forwardEndMs = eventTimeMs();
  const logits = await pass.logits(Int32Array.of(tokens.length - 1));
  const logitsMs = nowMs() - forwardEndMs;
  pass.dispose();
  sequence.dispose();
  return { gates, forwardMs, logitsMs, logits };
}

/** All experts of a layer, one after the other, each on its rows. */
function expertsMs(chosen: readonly number[]): number {
  const rows = new Map<number, number>();
  chosen.forEach((expert) => rows.set(expert, (rows.get(expert) ?? 0) + 1));
  return [...rows.values()].reduce((sum, count) => sum + operatorMs(EMULATION.expert, count), 0);
}

describe('an emulated device computes', () => {
  it("the processor's results to the bit, and takes the profiled time for each layer", async () => {
    const real = openTestDevice();
    const emulated = openEmulated();
    const expected = await run(await loadFixture(real, { experts: true }), PROMPT);
    const actual = await run(await loadFixture(emulated, { experts: true }), PROMPT);
    assert.deepEqual(bits(actual.logits), bits(expected.logits));
    let earliestMs = 0;
    assert.equal(actual.gates.length, layers);
    actual.gates.forEach((gate, layer) => {
      assert.deepEqual(gate.experts, expected.gates[layer]?.experts);
      earliestMs += operatorMs(EMULATION.denseLayer, PROMPT.length);
      assert.ok(gate.atMs >= earliestMs, `gate ${layer} at ${gate.atMs} ms, not before ${earliestMs}`);
      earliestMs += expertsMs(gate.experts);
    });
    assert.ok(actual.forwardMs >= earliestMs, `forward: ${actual.forwardMs} ms, not before ${earliestMs}`);
    assert.ok(actual.logitsMs >= operatorMs(EMULATION.lmHead, 1));
    assert.equal(emulated.info().backend, 'emulated');
    assert.equal(emulated.info().instructionSet, real.info().instructionSet);
    real.dispose();
    emulated.dispose();
  });

  it('what main asks of it, not sooner than the profiled one', async () => {
    const device = openEmulated();
    const model = await loadFixture(device, { experts: false });
    const pass = model.createPass(1);
    const sequence = model.createSequence();
    await begin(pass, sequence, PROMPT.slice(0, 1));
    const startMs = eventTimeMs();
    await pass.attend(0, new Uint8Array(4 * hiddenSize));
    assert.ok(nowMs() - startMs >= operatorMs(EMULATION.denseLayer, 1));
    device.dispose();
  });

  it('experts in slots like the processor, not sooner than the profiled one, one load after the other', async () => {
    const outputs: Uint8Array[] = [];
    for (const device of [openTestDevice(), openEmulated()]) {
      const slots = device.createExpertSlots(EXPERT_SHAPE, 2, 4, PLAIN_LOADER);
      const emulated = device.info().backend === 'emulated';
      const loadStartMs = eventTimeMs();
      await Promise.all([0, 1].map((slot) => slots.load(slot, expertSource(1, slot), FROM_STORAGE)));
      assert.ok(!emulated || nowMs() - loadStartMs >= 2 * EMULATION.loadMs, 'loads share the link');
      const hidden = new Uint8Array(Float32Array.from({ length: 4 * hiddenSize }, (_, i) => Math.sin(i)).buffer);
      const output = [0, 1].map(() => new Uint8Array(hidden.length));
      const startMs = eventTimeMs();
      await Promise.all(output.map((bytes, slot) => slots.execute(slot, 4, hidden, bytes)));
      assert.ok(!emulated || nowMs() - startMs >= 2 * operatorMs(EMULATION.expert, 4), 'experts run one by one');
      outputs.push(...output);
      device.dispose();
    }
    const [first, second, firstEmulated, secondEmulated] = outputs.map(bits);
    assert.deepEqual(firstEmulated, first);
    assert.deepEqual(secondEmulated, second);
    assert.notDeepEqual(first, second);
  });

  it('within bounds that a profile can have', () => {
    assert.throws(() => openEmulated({ loadMs: Number.NaN }), codeIs('INTERNAL'));
    assert.throws(() => openEmulated({ loadMs: -1 }), codeIs('INTERNAL'));
    assert.throws(() => openEmulated({ expertBytes: 0.5 }), codeIs('INTERNAL'));
    assert.throws(() => openEmulated({ expert: { ...NOTHING, rowMs: Infinity } }), codeIs('INTERNAL'));
  });
});

describe('an emulated device holds', () => {
  const instant = { denseLayer: NOTHING, expert: NOTHING, lmHead: NOTHING, loadMs: 0 };
  const modelBytes = 10_000 + layers * (1000 + experts * 300);
  const blockBytes = layers * BLOCK_POSITIONS * 2;

  it('what the profiled model takes there, and gives it back', async () => {
    const device = openEmulated(instant);
    const model = await loadFixture(device, { experts: true });
    assert.equal(device.info().usedBytes, modelBytes);
    const pass = model.createPass(1);
    const sequence = model.createSequence();
    await begin(pass, sequence, PROMPT.slice(0, 1));
    assert.equal(device.info().usedBytes, modelBytes + blockBytes);
    sequence.dispose();
    assert.equal(device.info().usedBytes, modelBytes);
    const slots = device.createExpertSlots(EXPERT_SHAPE, 3, 4, PLAIN_LOADER);
    assert.equal(slots.slotBytes, 200);
    assert.equal(device.info().usedBytes, modelBytes + 3 * 200 + 50);
    slots.dispose();
    pass.dispose();
    model.dispose();
    assert.equal(device.info().usedBytes, 0);
    assert.equal(device.info().highWaterBytes, modelBytes + Math.max(blockBytes, 650));
    device.dispose();
  });

  it('no more than its budget', async () => {
    const device = openEmulated(instant, modelBytes + blockBytes);
    const model = await loadFixture(device, { experts: true });
    const pass = model.createPass(1);
    await begin(pass, model.createSequence(), PROMPT.slice(0, 1));
    const second = model.createSequence();
    await assert.rejects(begin(pass, second, PROMPT.slice(0, 1)), codeIs('DEVICE_OUT_OF_MEMORY'));
    assert.equal(device.info().usedBytes, modelBytes + blockBytes);
    assert.throws(
      () => device.createExpertSlots(EXPERT_SHAPE, 1, 4, PLAIN_LOADER),
      (thrown) => codeIs('DEVICE_OUT_OF_MEMORY')(thrown) && /profiled model needs 200 bytes/.test(String(thrown)),
    );
    const tight = openEmulated(instant, modelBytes - 1);
    await assert.rejects(loadFixture(tight, { experts: true }), codeIs('DEVICE_OUT_OF_MEMORY'));
    device.dispose();
    tight.dispose();
  });
});

describe('a forward that is cancelled', () => {
  it('ends before its next layer; the pass begins anew', async () => {
    // An expert takes so long that the cancel falls into the wait for the first layer's.
    const device = openEmulated({ denseLayer: NOTHING, expert: { ...NOTHING, overheadMs: 120 }, lmHead: NOTHING });
    const model = await loadFixture(device, { experts: true });
    const sequence = model.createSequence();
    const pass = model.createPass(1);
    const token = PROMPT.slice(0, 1);
    pass.cancel(); // nothing is under way: the next one is not touched
    await begin(pass, sequence, token);
    const seen: number[] = [];
    const forward = pass.forward((layer) => {
      seen.push(layer);
      pass.cancel();
    });
    await assert.rejects(forward, codeIs('CANCELLED'));
    assert.ok(seen.length < layers, `all gates were told: ${seen.join()}`);
    assert.equal(sequence.length, 0);
    await assert.rejects(pass.logits(Int32Array.of(0)), codeIs('INTERNAL'));
    pass.cancel();
    sequence.truncate(0);
    await begin(pass, sequence, token);
    const gates: number[] = [];
    const startMs = eventTimeMs();
    await pass.forward((layer) => gates.push(layer));
    assert.ok(nowMs() - startMs >= layers * expertsPerToken * 120, 'experts of the second pass take their time');
    assert.deepEqual(gates, [0, 1, 2, 3]);
    assert.equal(sequence.length, 1);
    const logits = await pass.logits(Int32Array.of(0));
    const real = openTestDevice();
    const expected = await run(await loadFixture(real, { experts: true }), token);
    assert.deepEqual(bits(logits), bits(expected.logits));
    real.dispose();
    device.dispose();
  });

  it('ends a wait of an hour', async () => {
    const device = openEmulated({ denseLayer: { ...NOTHING, overheadMs: 3_600_000 } });
    const model = await loadFixture(device, { experts: true });
    const pass = model.createPass(1);
    await begin(pass, model.createSequence(), PROMPT.slice(0, 1));
    const forward = pass.forward(() => assert.fail('a gate was told before its layer was done'));
    pass.cancel();
    await assert.rejects(forward, codeIs('CANCELLED'));
    device.dispose();
  });
});

describe('eventTimeMs', () => {
  it('is the time of the event in hand where that is noticed in time, else now', async () => {
    const beforeMs = nowMs();
    for (let step = 1; step <= 5; step += 1) {
      const dueMs = beforeMs + 4 * step;
      await waitUntil(dueMs);
      const eventMs = eventTimeMs();
      const late = nowMs() - dueMs > 2;
      assert.ok(late || Math.abs(eventMs - dueMs) <= 2 * NANOSECOND_MS, `${eventMs} ms, not ${dueMs}`);
      assert.ok(eventMs >= dueMs - NANOSECOND_MS && eventMs <= nowMs());
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
    const laterMs = nowMs();
    assert.ok(eventTimeMs() >= laterMs, 'an event that is long past is not in hand');
  });

  it("is the profiled end of an emulated device's call", async () => {
    const device = openEmulated();
    const model = await loadFixture(device, { experts: false });
    const pass = model.createPass(1);
    await begin(pass, model.createSequence(), PROMPT.slice(0, 1));
    const startMs = eventTimeMs();
    await pass.attend(0, new Uint8Array(4 * hiddenSize));
    const tookMs = eventTimeMs() - startMs;
    const profiledMs = operatorMs(EMULATION.denseLayer, 1);
    // More only where this machine was held up.
    assert.ok(tookMs >= profiledMs - 2 * NANOSECOND_MS, `${tookMs} ms of ${profiledMs}`);
    device.dispose();
  });
});

describe('waitUntil', () => {
  it('never resolves early, whatever the order', async () => {
    const startMs = nowMs();
    const delaysMs = [7, 3.3, 0.2, 25, -5, 12.75, 3.3, 1, 18, 0];
    await Promise.all(
      delaysMs.map(async (delayMs) => {
        await waitUntil(startMs + delayMs);
        const earlyMs = startMs + delayMs - nowMs();
        assert.ok(earlyMs <= NANOSECOND_MS, `${earlyMs} ms early`);
      }),
    );
  });

  it('resolves for what has passed and refuses what is no time', async () => {
    await waitUntil(-1e300);
    await waitUntil(0);
    await assert.rejects(waitUntil(Number.NaN), codeIs('INTERNAL'));
    await assert.rejects(waitUntil(Infinity), codeIs('INTERNAL'));
  });
});
