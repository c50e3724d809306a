import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
  FROM_STORAGE,
  PLAIN_LOADER,
  measureMachine,
  nativeStatus,
  type Device,
  type Pass,
} from '../../native/index.js';
import { plainGlu } from '../../engine/emulation/plain-shape.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import {
  FIXTURE_SHAPE,
  FIXTURE_SIZES,
  fixtureShape,
  expertSource,
  loadFixture,
  openTestDevice,
} from './native-test-model.js';

const { hiddenSize, intermediateSize, layers } = FIXTURE_SIZES;
const EXPERT_SHAPE = { hiddenSize, glu: plainGlu(intermediateSize), format: 'bf16' } as const;
const INDEX_URL = new URL('../../native/index.js', import.meta.url).href;
const COLLECTIONS_LIMIT = 50;

const codeIs =
  (code: ErrorCode) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof OdmoeError, String(error));
    assert.equal(error.code, code, error.message);
    return true;
  };

function runScript(script: string): { status: number | null; stdout: string; stderr: string } {
  const result = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    encoding: 'utf8',
    timeout: 30_000,
    cwd: fileURLToPath(new URL('../../..', import.meta.url)),
  });
  return { status: result.status, stdout: result.stdout, stderr: result.stderr };
}

async function beginOne(pass: Pass, sequence: ReturnType<Awaited<ReturnType<typeof loadFixture>>['createSequence']>) {
  await pass.begin([sequence], Int32Array.of(0), Int32Array.of(0), Int32Array.of(7));
}

describe('native handles', () => {
  let device: Device;

  beforeEach(() => {
    device = openTestDevice();
  });

  afterEach(() => {
    device.dispose();
  });

  it('report the instruction sets of the library', () => {
    const status = nativeStatus();
    assert.equal(status.loaded, true, status.reason ?? '');
    assert.equal(status.instructionSets.at(-1), 'scalar');
  });

  it('count the memory of slots to the byte, and release it', () => {
    const { slotBytes, sharedBytes } = device.expertSlotBytes(EXPERT_SHAPE, 16, PLAIN_LOADER);
    const slots = device.createExpertSlots(EXPERT_SHAPE, 3, 16, PLAIN_LOADER);
    assert.equal(slots.count, 3);
    assert.equal(slots.slotBytes, slotBytes);
    assert.equal(device.info().usedBytes, 3 * slotBytes + sharedBytes);
    slots.dispose();
    slots.dispose();
    assert.equal(device.info().usedBytes, 0);
    assert.equal(device.info().highWaterBytes, 3 * slotBytes + sharedBytes);
  });

  it('release the memory of a slot and take it again, within the budget', async () => {
    const { slotBytes, sharedBytes } = device.expertSlotBytes(EXPERT_SHAPE, 16, PLAIN_LOADER);
    const tight = openTestDevice({ budgetBytes: 2 * slotBytes + sharedBytes });
    const slots = tight.createExpertSlots(EXPERT_SHAPE, 2, 16, PLAIN_LOADER);
    const expert = slots.register(expertSource(0, 0));
    assert.equal((await slots.load(0, expert, FROM_STORAGE)).loaded, true);
    slots.letGo(0);
    slots.letGo(0);
    assert.equal(tight.info().usedBytes, slotBytes + sharedBytes);
    await assert.rejects(slots.load(0, expert, FROM_STORAGE), codeIs('INTERNAL'));
    slots.take(0);
    slots.take(0);
    assert.equal(tight.info().usedBytes, 2 * slotBytes + sharedBytes);
    assert.equal((await slots.load(0, expert, FROM_STORAGE)).loaded, true);
    slots.letGo(1);
    slots.dispose();
    assert.equal(tight.info().usedBytes, 0);
    tight.dispose();
  });

  it('refuse slots beyond the budget and leak nothing', () => {
    const { slotBytes, sharedBytes } = device.expertSlotBytes(EXPERT_SHAPE, 16, PLAIN_LOADER);
    const tight = openTestDevice({ budgetBytes: 2 * slotBytes + sharedBytes });
    assert.throws(() => tight.createExpertSlots(EXPERT_SHAPE, 3, 16, PLAIN_LOADER), codeIs('DEVICE_OUT_OF_MEMORY'));
    assert.equal(tight.info().usedBytes, 0);
    tight.createExpertSlots(EXPERT_SHAPE, 2, 16, PLAIN_LOADER).dispose();
    tight.dispose();
  });

  it('refuse weights and KV blocks beyond the budget and leak nothing', async () => {
    const roomy = await loadFixture(device, { experts: false });
    const weightBytes = device.info().usedBytes;
    roomy.dispose();
    const tight = openTestDevice({ budgetBytes: weightBytes + 400_000 });
    const model = await loadFixture(tight, { experts: false });
    await assert.rejects(
      (async () => {
        for (let layer = 0; layer < layers; layer++) {
          for (let expert = 0; expert < 8; expert++) {
            await model.loadResidentExpert(layer, expert, expertSource(layer, expert), 'fp32');
          }
        }
      })(),
      codeIs('DEVICE_OUT_OF_MEMORY'),
    );
    model.dispose();
    const again = await loadFixture(tight, { experts: false });
    const pass = again.createPass(1);
    const first = again.createSequence();
    await beginOne(pass, first);
    const used = tight.info().usedBytes;
    const second = again.createSequence();
    await assert.rejects(beginOne(pass, second), codeIs('DEVICE_OUT_OF_MEMORY'));
    assert.equal(tight.info().usedBytes, used);
    tight.dispose();
  });

  it('throw after dispose, which may be called twice and in any order', async () => {
    const model = await loadFixture(device, { experts: true });
    const sequence = model.createSequence();
    const pass = model.createPass(2);
    device.dispose();
    model.dispose();
    model.dispose();
    await beginOne(pass, sequence);
    await pass.forward(null);
    pass.dispose();
    sequence.dispose();
    assert.throws(() => sequence.length, codeIs('INTERNAL'));
    assert.throws(() => model.createSequence(), codeIs('INTERNAL'));
    assert.throws(() => device.info(), codeIs('INTERNAL'));
    await assert.rejects(pass.forward(null), codeIs('INTERNAL'));
  });

  it('finish calls that run while everything is disposed of', async () => {
    const observer = openTestDevice();
    const model = await loadFixture(observer, { experts: true });
    const sequence = model.createSequence();
    const pass = model.createPass(256);
    const rows = Int32Array.from({ length: 256 }, (_, i) => i);
    const began = pass.begin([sequence], new Int32Array(256), rows, rows);
    for (const handle of [pass, sequence, model]) handle.dispose();
    await began;
    const slots = observer.createExpertSlots(EXPERT_SHAPE, 1, 1, PLAIN_LOADER);
    const loading = slots.load(0, slots.register(expertSource(0, 0)), FROM_STORAGE);
    slots.dispose();
    assert.equal((await loading).loaded, true);
    observer.dispose();
  });

  it('take one call at a time per pass and keep the order of calls', async () => {
    const model = await loadFixture(device, { experts: true });
    const sequence = model.createSequence();
    const pass = model.createPass(2);
    const hidden = new Uint8Array(hiddenSize * 4);
    const first = beginOne(pass, sequence);
    await assert.rejects(pass.attend(0, hidden), codeIs('INTERNAL'));
    await first;
    await assert.rejects(pass.logits(Int32Array.of(0)), codeIs('INTERNAL'));
    await assert.rejects(pass.attend(1, hidden), codeIs('INTERNAL'));
    await assert.rejects(pass.attend(0, hidden), codeIs('INTERNAL'), 'a failed call leaves the pass to a new begin');
    await beginOne(pass, sequence);
    await assert.rejects(pass.attend(0, new Uint8Array(3)), codeIs('INTERNAL'));
    model.dispose();
  });

  it("deliver every gate decision before the call settles, and reject with the listener's error", async () => {
    const model = await loadFixture(device, { experts: true });
    const sequence = model.createSequence();
    const pass = model.createPass(1);
    await beginOne(pass, sequence);
    const seen: number[] = [];
    await pass.forward((layer) => seen.push(layer));
    assert.deepEqual(seen, [0, 1, 2, 3]);
    await beginOne(pass, sequence);
    const thrown = new OdmoeError('CANCELLED', 'enough');
    await assert.rejects(
      pass.forward((layer) => {
        if (layer === 1) throw thrown;
      }),
      (error) => error === thrown,
    );
    model.dispose();
  });

  it('name missing weights', async () => {
    const model = device.createModel(FIXTURE_SHAPE);
    const pass = model.createPass(1);
    await assert.rejects(beginOne(pass, model.createSequence()), /embedding has not been loaded/);
    model.dispose();
    const main = await loadFixture(device, { experts: false });
    const other = main.createPass(1);
    await beginOne(other, main.createSequence());
    await assert.rejects(other.forward(null), /expert \d of expert layer 0 is not resident/);
    main.dispose();
  });

  it('refuse arguments of the wrong kind', async () => {
    assert.throws(() => openTestDevice({ threads: -1 }), codeIs('INTERNAL'));
    assert.throws(() => openTestDevice({ instructionSet: 'sse9' as 'avx2' }), codeIs('DEVICE_UNAVAILABLE'));
    assert.throws(() => device.createModel(fixtureShape({ headDim: 15 })), codeIs('MODEL_UNSUPPORTED'));
    assert.throws(() => device.createModel({ ...FIXTURE_SHAPE, maxPositions: 2 ** 21 }), codeIs('MODEL_UNSUPPORTED'));
    await assert.rejects(measureMachine({} as Device, 1), codeIs('INTERNAL'));
    const model = await loadFixture(device, { experts: false });
    const pass = model.createPass(4);
    const ones = (...values: number[]): Int32Array => Int32Array.from(values);
    const sequence = model.createSequence();
    await assert.rejects(pass.begin([sequence], ones(0), ones(0), ones(300)), codeIs('INTERNAL'));
    await assert.rejects(pass.begin([sequence], ones(1), ones(0), ones(1)), codeIs('INTERNAL'));
    await assert.rejects(pass.begin([sequence], ones(0, 0), ones(0), ones(1)), codeIs('INTERNAL'));
    await assert.rejects(pass.begin([sequence, sequence], ones(0), ones(0), ones(1)), codeIs('INTERNAL'));
    await assert.rejects(pass.begin([], ones(), ones(), ones()), codeIs('INTERNAL'));
    await assert.rejects(model.loadResidentExpert(0, 8, expertSource(0, 0), 'bf16'), codeIs('INTERNAL'));
    await assert.rejects(model.loadResidentExpert(4, 0, expertSource(0, 0), 'bf16'), codeIs('INTERNAL'));
    model.dispose();
  });

  it('cancel a waiting load and leave the slot empty', async () => {
    const slots = device.createExpertSlots(EXPERT_SHAPE, 2, 1, PLAIN_LOADER);
    const queued = Array.from({ length: 2 }, (_, slot) =>
      slots.load(slot, slots.register(expertSource(0, slot)), FROM_STORAGE),
    );
    await assert.rejects(slots.load(1, slots.register(expertSource(0, 0)), FROM_STORAGE), codeIs('INTERNAL'));
    slots.cancel(1);
    const [first, second] = await Promise.all(queued);
    assert.equal(first?.loaded, true);
    if (second?.loaded === false) {
      const buffer = new Uint8Array(hiddenSize * 4);
      await assert.rejects(slots.execute(1, 1, buffer, buffer.slice()), codeIs('INTERNAL'));
    }
    assert.equal((await slots.load(1, slots.register(expertSource(0, 1)), FROM_STORAGE)).loaded, true);
    assert.throws(() => {
      slots.cancel(2);
    }, codeIs('INTERNAL'));
    slots.dispose();
  });

  it('do not load over a slot that executes', async () => {
    const slots = device.createExpertSlots(EXPERT_SHAPE, 1, 64, PLAIN_LOADER);
    await slots.load(0, slots.register(expertSource(0, 0)), FROM_STORAGE);
    const hidden = new Uint8Array(64 * hiddenSize * 4);
    const executing = slots.execute(0, 64, hidden, new Uint8Array(hidden.length));
    await assert.rejects(slots.load(0, slots.register(expertSource(0, 1)), FROM_STORAGE), codeIs('INTERNAL'));
    assert.ok((await executing).executeMs >= 0);
    await slots.load(0, slots.register(expertSource(0, 1)), FROM_STORAGE);
    await assert.rejects(slots.execute(0, 65, hidden, hidden.slice()), codeIs('INTERNAL'));
    slots.dispose();
  });

  it('free undisposed memory in garbage collection', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    await (async () => {
      const model = await loadFixture(device, { experts: true });
      const pass = model.createPass(4);
      await beginOne(pass, model.createSequence());
      await pass.forward(null);
      device.createExpertSlots(EXPERT_SHAPE, 2, 2, PLAIN_LOADER);
    })();
    assert.ok(device.info().usedBytes > 0);
    // The CPU backend's own scratch for attention stays with the device.
    const settled = (): boolean => device.info().usedBytes < 100_000;
    for (let i = 0; i < COLLECTIONS_LIMIT && !settled(); i++) {
      collect();
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.ok(settled(), `${device.info().usedBytes} bytes are still in use`);
  });

  it('measure the machine', async () => {
    const speed = await measureMachine(device, 20);
    assert.ok(speed.readBytesPerS > 0 && speed.fmaFlopPerS > 0);
  });

  it('let the process end with handles open, and exit in the middle of a call', () => {
    const open = `import { openDevice, measureMachine } from '${INDEX_URL}';
      const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 2, budgetBytes: 0 });`;
    assert.deepEqual(runScript(`${open} console.log('open');`), { status: 0, stdout: 'open\n', stderr: '' });
    const waiting = `${open} measureMachine(device, 50).then(() => console.log('measured'));`;
    assert.deepEqual(runScript(waiting), { status: 0, stdout: 'measured\n', stderr: '' });
    const leaving = `${open} void measureMachine(device, 5000); setTimeout(() => process.exit(3), 20);`;
    assert.deepEqual(runScript(leaving), { status: 3, stdout: '', stderr: '' });
    const times = `import { waitUntil } from '${INDEX_URL}'; const nowMs = Number(process.hrtime.bigint()) / 1e6;`;
    const awaited = `${times} waitUntil(nowMs + 30).then(() => console.log('waited'));`;
    assert.deepEqual(runScript(awaited), { status: 0, stdout: 'waited\n', stderr: '' });
    const giving = `${times} void waitUntil(nowMs + 3.6e6); setTimeout(() => process.exit(3), 20);`;
    assert.deepEqual(runScript(giving), { status: 3, stdout: '', stderr: '' });
  });

  it('survive the end of a worker thread in the middle of a call', () => {
    const inWorker = `import { parentPort } from 'node:worker_threads';
      import('${INDEX_URL}').then(({ openDevice, measureMachine }) => {
      const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
      void measureMachine(device, 100);
      parentPort.postMessage('measuring');
    });`;
    const script = `import { Worker } from 'node:worker_threads';
      const worker = new Worker(new URL(${JSON.stringify(`data:text/javascript,${encodeURIComponent(inWorker)}`)}));
      worker.on('message', async () => {
        await worker.terminate();
        setTimeout(() => console.log('alive'), 400);
      });`;
    assert.deepEqual(runScript(script), { status: 0, stdout: 'alive\n', stderr: '' });
  });
});
