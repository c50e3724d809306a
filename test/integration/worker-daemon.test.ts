import assert from 'node:assert/strict';
import { closeSync, cpSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { plainRelease } from '../unit/wire-messages.js';
import { MAX_ROWS, WorkerSetting, hiddenStates, placement } from './worker-test-setting.js';

const TESTBED = join(packageRoot(), 'bench/profiles/rtx3090-testbed.yaml');

describe('worker daemon: the service of experts', () => {
  const setting = new WorkerSetting();

  it('runs a predicted expert from its slot, evicts it, and equals the same expert of the checkpoint to the bit', async () => {
    const node = await setting.start();
    const main = await setting.connectMain(node);
    const shadow = await setting.connectShadow(node);
    const { hiddenSize } = setting.shape;
    for (const [position, layer, expert] of [
      [0, 1, 6],
      [1, 0, 0],
      [2, 3, 7],
    ] as const) {
      shadow.predict({ position, layer, experts: [expert] });
      await main.status('the prediction is loaded', ({ loads }) => loads === position + 1);
      const hidden = hiddenStates(1, hiddenSize, position);
      const result = await main.result({ position, layer, expert, hiddenSize, hidden });
      assert.deepEqual([result.wasLoaded, result.stallUs, result.rows, result.epoch], [true, 0, 1, 1]);
      assert.deepEqual(Buffer.from(result.output), await setting.reference.run(layer, expert, hidden));
    }
    const status = await main.status('the last eviction is reported', ({ evictions }) => evictions === 3);
    assert.deepEqual([status.reloads, status.executions, status.slots, status.slotsInUse], [0, 3, 1, 0]);
    assert.ok(status.storageReadBytes > 0 && status.loadMsMean > 0 && status.executeMsMean > 0);
  });

  it('serves every expert of every layer without any prediction, from one slot', async () => {
    const main = await setting.connectMain(await setting.start({ slots: 1 }));
    const { hiddenSize, expertLayers: layers, experts } = setting.shape;
    const hidden = hiddenStates(1, hiddenSize);
    for (let layer = 0; layer < layers; layer++) {
      const runs = Array.from({ length: experts }, (_, expert) => main.result({ layer, expert, hiddenSize, hidden }));
      for (const [expert, result] of (await Promise.all(runs)).entries()) {
        assert.equal(result.wasLoaded, false);
        assert.deepEqual(Buffer.from(result.output), await setting.reference.run(layer, expert, hidden));
      }
    }
    const status = await main.status(
      'all loads and executions are reported',
      ({ executions }) => executions === layers * experts,
    );
    assert.deepEqual([status.reloads, status.loads, status.slotsInUse], [32, 32, 0]);
  });

  it('survives mispredictions: the slots of wrong predictions go to the experts that main requests', async () => {
    const node = await setting.start({ slots: 2 });
    const main = await setting.connectMain(node);
    const shadow = await setting.connectShadow(node);
    const { hiddenSize } = setting.shape;
    shadow.predict({ layer: 0, experts: [1] });
    shadow.predict({ layer: 2, experts: [2] });
    await main.status('both are loaded', ({ loads }) => loads === 2);
    const hidden = hiddenStates(1, hiddenSize, 9);
    main.send({ kind: 'release', release: plainRelease({ layer: 0, experts: [1] }) });
    const run = main.result({ layer: 0, expert: 5, hiddenSize, hidden });
    const result = await run;
    assert.equal(result.wasLoaded, false);
    assert.ok(result.stallUs > 0);
    assert.deepEqual(Buffer.from(result.output), await setting.reference.run(0, 5, hidden));
    const kept = await main.result({ layer: 2, expert: 2, hiddenSize, hidden });
    assert.equal(kept.wasLoaded, true);
    assert.deepEqual(Buffer.from(kept.output), await setting.reference.run(2, 2, hidden));
    assert.equal((await main.status('a status')).reloads, 1);
  });

  it('runs a prefill: mini-batches in order, the next layer announced, same bits as row by row', async () => {
    const main = await setting.connectMain(await setting.start({ slots: 2, main: { miniBatchRows: 8 } }));
    const { hiddenSize } = setting.shape;
    main.predict({ position: 40, layer: 0, experts: [0, 3, 5] });
    const hidden = [7, 30, 4].map((rows, index) => hiddenStates(rows, hiddenSize, index));
    const runs = [0, 3, 5].flatMap((expert) =>
      hidden.map((batch, index) =>
        main.result({ position: 40, layer: 0, expert, hiddenSize, hidden: batch, last: index === hidden.length - 1 }),
      ),
    );
    main.predict({ position: 40, layer: 1, experts: [2] });
    const results = await Promise.all(runs);
    for (const [index, result] of results.entries()) {
      const expert = [0, 3, 5][Math.floor(index / 3)] as number;
      const batch = hidden[index % 3] as Uint8Array;
      assert.deepEqual(Buffer.from(result.output), await setting.reference.run(0, expert, batch));
    }
    const rowBytes = hiddenSize * 4;
    const row = (hidden[1] as Uint8Array).subarray(5 * rowBytes, 6 * rowBytes);
    const alone = await setting.reference.run(0, 0, row);
    assert.deepEqual(Buffer.from(results[1]?.output ?? []).subarray(5 * rowBytes, 6 * rowBytes), alone);
    const next = await main.status('the next layer is loaded', ({ loads }) => loads === 4);
    assert.deepEqual([next.reloads, next.evictions, next.slotsInUse], [0, 3, 1]);
  });

  it('answers messages of an older placement with STALE_EPOCH and goes on', async () => {
    const main = await setting.connectMain(await setting.start());
    const { hiddenSize } = setting.shape;
    const hidden = hiddenStates(1, hiddenSize);
    main.place(placement(2));
    const error = await main.error({ epoch: 1, layer: 0, expert: 0, hiddenSize, hidden });
    assert.deepEqual([error.code, error.epoch], ['STALE_EPOCH', 1]);
    await main.result({ epoch: 2, layer: 0, expert: 0, hiddenSize, hidden });
    const status = await main.status('a status of the new epoch', ({ epoch }) => epoch === 2);
    assert.deepEqual([status.staleMessages, status.executions], [1, 1]);
  });

  it('answers impossible requests with an error and keeps the stream', async () => {
    const main = await setting.connectMain(await setting.start());
    const { hiddenSize } = setting.shape;
    const hidden = hiddenStates(1, hiddenSize);
    const wrongSize = { layer: 0, expert: 0, hiddenSize: 32, hidden: hidden.subarray(0, 128) };
    for (const request of [
      { layer: 4, expert: 0, hiddenSize, hidden },
      { layer: 0, expert: 8, hiddenSize, hidden },
      wrongSize,
    ]) {
      assert.equal((await main.error(request)).code, 'PROTOCOL_VIOLATION');
    }
    await main.result({ layer: 0, expert: 0, hiddenSize, hidden });
  });

  it('answers each of many random requests with the right bits, whatever was predicted and released meanwhile', async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const random = randomNumbers(seed);
    const { hiddenSize, expertLayers: layers, experts } = setting.shape;
    const hidden = hiddenStates(2, hiddenSize, seed);
    const expected: Buffer[] = [];
    for (let index = 0; index < layers * experts; index++) {
      expected.push(await setting.reference.run(Math.floor(index / experts), index % experts, hidden));
    }
    for (const slots of [1, 3]) {
      const node = await setting.start({ slots });
      const main = await setting.connectMain(node);
      const shadow = await setting.connectShadow(node);
      const runs: Promise<void>[] = [];
      for (let step = 0; step < 400; step++) {
        const place = { sequence: random(3), position: Math.floor(step / 40) + random(2), layer: random(layers) };
        const expert = random(experts);
        const kind = random(4);
        if (kind === 0) shadow.predict({ ...place, experts: [expert, random(experts)] });
        else if (kind === 1) main.predict({ ...place, experts: [expert] });
        else if (kind === 2 && random(2) === 0)
          main.send({ kind: 'release', release: plainRelease({ ...place, experts: [expert] }) });
        else {
          const run = main.result({ ...place, expert, hiddenSize, hidden, last: random(3) > 0 });
          runs.push(
            run.then(({ output }) => {
              assert.deepEqual(Buffer.from(output), expected[place.layer * experts + expert], `seed ${seed}`);
            }),
          );
        }
        if (random(8) === 0) await new Promise((resolve) => setTimeout(resolve, random(3)));
      }
      await Promise.all(runs);
      for (const sequence of [0, 1, 2]) main.send({ kind: 'end', end: { sequence } });
      await main.status('every slot is free', ({ slotsInUse }) => slotsInUse === 0);
      await main.close();
    }
  });

  it('answers a corrupt chunk with PACK_CORRUPT and serves undamaged experts', async () => {
    const parent = mkdtempSync(join(tmpdir(), 'odmoe-worker-'));
    try {
      const copy = join(parent, 'pack');
      cpSync(setting.pack, copy, { recursive: true });
      const { path, offsetBytes } = (await openModelSource(copy)).expert(1, 4).up.chunks[0] ?? assert.fail('no chunk');
      flipByte(path, offsetBytes);
      const main = await setting.connectMain(await setting.start({}, copy));
      const { hiddenSize } = setting.shape;
      const hidden = hiddenStates(1, hiddenSize);
      main.predict({ layer: 1, experts: [4] });
      const error = await main.error({ layer: 1, expert: 4, hiddenSize, hidden });
      assert.equal(error.code, 'PACK_CORRUPT');
      assert.match(error.message, /Expert 4 of layer 1/);
      await main.result({ layer: 1, expert: 5, hiddenSize, hidden });
      assert.equal((await main.status('a status', ({ executions }) => executions === 1)).slotsInUse, 0);
    } finally {
      rmSync(parent, { recursive: true, force: true });
    }
  });

  it('stays within its memory budget, with as many slots as that holds', async () => {
    const roomy = await setting.connectMain(await setting.start({ slots: 4 }));
    const { deviceMemoryUsedBytes, slotBytes } = await roomy.status('a status');
    await roomy.close();
    const budget = deviceMemoryUsedBytes - slotBytes;
    const main = await setting.connectMain(await setting.start({ slots: 4, device: { memoryBudgetBytes: budget } }));
    const { hiddenSize } = setting.shape;
    const hidden = hiddenStates(MAX_ROWS, hiddenSize);
    await Promise.all(Array.from({ length: 8 }, (_, expert) => main.result({ layer: 0, expert, hiddenSize, hidden })));
    const status = await main.status('a status', ({ executions }) => executions === 8);
    assert.deepEqual([status.slots, status.deviceMemoryBudgetBytes], [3, budget]);
    assert.ok(status.deviceMemoryHighWaterBytes <= budget);
    assert.equal(setting.log.matching('holds less than was asked for').length, 1);
  });

  it('has, under emulation, as many slots as the profiled device holds experts of the profiled model', async () => {
    // 1 GB, of which 0.25 GB are reserved; an expert of Mixtral-8x7B has 176 million weights of 4 or 2 bytes.
    for (const [expertStorage, slots] of [
      ['fp32', 1],
      ['bf16', 2],
    ] as const) {
      await setting.start({ slots: 4, emulation: { profilePath: TESTBED, expertStorage } });
      assert.equal(setting.log.matching(`"plan":{"slots":${slots},`).length, 1);
    }
    const starved = {
      emulation: { profilePath: TESTBED, expertStorage: 'fp32' },
      device: { memoryBudgetBytes: 5e8 },
    } as const;
    await assert.rejects(setting.start(starved), { code: 'DEVICE_OUT_OF_MEMORY' });
  });
});

/** Whole numbers below the limit asked for, the same for the same seed (a linear congruential generator). */
function randomNumbers(seed: number): (limit: number) => number {
  let state = seed >>> 0;
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

function flipByte(path: string, offset: number): void {
  const file = openSync(path, 'r+');
  const byte = Buffer.alloc(1);
  readSync(file, byte, 0, 1, offset);
  writeSync(file, Buffer.from([(byte[0] ?? 0) ^ 0x40]), 0, 1, offset);
  closeSync(file);
}
