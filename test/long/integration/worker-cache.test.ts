import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NO_CAPACITIES } from '../../../shared/decisions/caching/pool-capacities.js';
import type { NodeStatus } from '../../../shared/wire/messages.js';
import { WorkerSetting, hiddenStates } from '../../integration/worker-test-setting.js';
import type { WorkerTestClient } from '../../integration/worker-test-client.js';

describe('worker daemon: the cache', () => {
  const setting = new WorkerSetting();

  /** Runs every expert of layer 0 twice and returns the status after that. */
  async function runAll(main: WorkerTestClient): Promise<NodeStatus> {
    const { hiddenSize, experts } = setting.shape;
    const hidden = hiddenStates(1, hiddenSize);
    for (let round = 0; round < 2; round++) {
      for (let expert = 0; expert < experts; expert++) {
        const result = await main.result({ position: round, layer: 0, expert, hiddenSize, hidden });
        assert.deepEqual(Buffer.from(result.output), await setting.reference.run(0, expert, hidden));
      }
    }
    return main.status('all have run', ({ executions }) => executions === 2 * experts);
  }

  it('holds every expert that fits, within the memory budget, and reads none twice', async () => {
    const plain = await setting.connectMain(await setting.start());
    const { deviceMemoryUsedBytes, slotBytes } = await plain.status('a status');
    await plain.close();
    const budget = deviceMemoryUsedBytes + 40 * slotBytes;
    const worker = { cacheBytes: 39.5 * slotBytes, cachePolicy: 'lru' } as const;
    const main = await setting.connectMain(await setting.start({ worker, device: { memoryBudgetBytes: budget } }));
    const status = await runAll(main);
    assert.ok(status.cache !== null);
    assert.deepEqual([status.loads, status.cache.hits.full, status.cache.misses], [8, 8, 8]);
    assert.deepEqual(status.cache.capacities, { ...NO_CAPACITIES, full: 32 }, 'there are no more experts than these');
    assert.ok(status.deviceMemoryHighWaterBytes <= budget);
    assert.deepEqual([status.slots, setting.log.matching('holds less than was asked for').length], [1, 0]);
  });

  it('is recoded while no requests arrive, and gives the same results', async () => {
    const plain = await setting.connectMain(await setting.start());
    const { deviceMemoryUsedBytes, slotBytes } = await plain.status('a status');
    await plain.close();
    const budget = deviceMemoryUsedBytes + 45 * slotBytes;
    const worker = { cacheBytes: 40 * slotBytes, cachePolicy: 'lru', resident: 'fixed4' } as const;
    const main = await setting.connectMain(await setting.start({ worker, device: { memoryBudgetBytes: budget } }));
    const { experts } = setting.shape;
    await runAll(main);
    const recoded = await main.status('all are recoded', ({ cache }) => cache?.packed === experts);
    assert.deepEqual([recoded.cache?.kept.full, recoded.loads], [experts, experts]);
    const hidden = hiddenStates(3, setting.shape.hiddenSize);
    for (let expert = 0; expert < experts; expert++) {
      const { output } = await main.result({
        position: 2,
        layer: 0,
        expert,
        hidden,
        hiddenSize: setting.shape.hiddenSize,
      });
      assert.deepEqual(Buffer.from(output), await setting.reference.run(0, expert, hidden));
    }
    const after = await main.status('all have run again', ({ executions }) => executions === 3 * experts);
    assert.deepEqual([after.loads, after.cache?.packed], [experts, experts]);
    assert.ok(after.deviceMemoryHighWaterBytes <= budget);
  });

  it('is not recoded where the memory for that is short', async () => {
    const plain = await setting.connectMain(await setting.start());
    const { deviceMemoryUsedBytes, slotBytes } = await plain.status('a status');
    await plain.close();
    const worker = { cacheBytes: 3 * slotBytes, cachePolicy: 'lru', resident: 'fixed4' } as const;
    const memoryBudgetBytes = deviceMemoryUsedBytes + 3 * slotBytes;
    const main = await setting.connectMain(await setting.start({ worker, device: { memoryBudgetBytes } }));
    const { cache } = await runAll(main);
    assert.deepEqual([cache?.capacities.full, cache?.packed], [3, 0]);
    assert.equal(setting.log.matching('no memory to recode').length, 1);
  });

  it('is planned at the start from measurements of this machine, in one line of the log', async () => {
    const main = await setting.connectMain(await setting.start({ worker: { cacheBytes: 700_000 } }));
    const { cache } = await runAll(main);
    assert.ok(cache !== null && cache.bytes <= 700_000);
    const [line, ...others] = setting.log.matching('cache planned');
    assert.deepEqual(others, []);
    const plan = JSON.parse(/\{.*\}$/.exec(line ?? '')?.[0] ?? 'null') as Record<string, unknown>;
    assert.deepEqual([plan['policy'], plan['budgetBytes'], plan['usedBytes']], ['planned', 700_000, cache.bytes]);
    assert.ok(plan['profile'] !== null && plan['expected'] !== null);
  });

  it('is smaller than requested where the budget holds less, and the log says so', async () => {
    const plain = await setting.connectMain(await setting.start());
    const { deviceMemoryUsedBytes, slotBytes } = await plain.status('a status');
    await plain.close();
    const budget = deviceMemoryUsedBytes + 3 * slotBytes;
    const worker = { cacheBytes: 10 * slotBytes, cachePolicy: 'fifo' } as const;
    const main = await setting.connectMain(await setting.start({ worker, device: { memoryBudgetBytes: budget } }));
    const { cache, deviceMemoryHighWaterBytes } = await runAll(main);
    assert.equal(cache?.capacities.full, 3);
    assert.ok(deviceMemoryHighWaterBytes <= budget);
    assert.equal(setting.log.matching('holds less than was asked for').length, 1);
  });

  it('does not start with configured pools that do not fit', async () => {
    const worker = { pools: { ...NO_CAPACITIES, full: 1000 } };
    const start = setting.start({ worker, device: { memoryBudgetBytes: 1_000_000 } });
    await assert.rejects(start, {
      code: 'DEVICE_OUT_OF_MEMORY',
      message: /worker\.pools take .* larger memory budget/,
    });
  });

  it('remembers the requested experts until its next start, and nothing else', async () => {
    const stateDirectory = mkdtempSync(join(tmpdir(), 'odmoe-counting-'));
    try {
      const changes = { stateDirectory, worker: { cacheBytes: 300_000 } };
      const first = await setting.start(changes);
      await runAll(await setting.connectMain(first));
      assert.match(setting.log.matching('cache planned')[0] ?? '', /"recordedActivations":0,/);
      await first.stop();
      const [file, ...others] = readdirSync(join(stateDirectory, 'activations'));
      assert.deepEqual(others, []);
      const record = JSON.parse(readFileSync(join(stateDirectory, 'activations', file ?? ''), 'utf8')) as object;
      assert.deepEqual(Object.keys(record), ['format', 'format_version', 'pack_digest', 'experts', 'layers']);
      assert.deepEqual(
        { ...record, pack_digest: '' },
        {
          format: 'odmoe-activation-counts',
          format_version: 1,
          pack_digest: '',
          experts: 8,
          layers: { 0: [2, 2, 2, 2, 2, 2, 2, 2] },
        },
      );
      await setting.start(changes);
      assert.match(setting.log.matching('cache planned')[1] ?? '', /"recordedActivations":16,/);
    } finally {
      rmSync(stateDirectory, { recursive: true, force: true });
    }
  });
});
