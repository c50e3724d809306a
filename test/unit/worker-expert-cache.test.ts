import type { PoolCapacities, ExpertPolicy } from '../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { NO_CAPACITIES, poolBytes } from '../../shared/decisions/caching/pool-capacities.js';
import type { LoadTimes } from '../../shared/decisions/caching/load-times.js';
import type { Execute, WorkerReply } from '../../shared/wire/messages.js';
import { ActivationRecord } from '../../worker-node/cache/activation-record.js';
import { ExpertCache } from '../../worker-node/cache/expert-cache.js';
import {
  planForMachine,
  planFullExperts,
  requirePools,
  type WorkerCacheRequest,
} from '../../worker-node/cache/worker-cache-plan.js';
import { TestLog } from '../integration/harness/test-log.js';
import { plainExecute } from './wire-messages.js';
import { TestSlots, settle, testService } from './worker-test-slots.js';
import { RUNTIME } from '../wall.js';
import { perPart } from '../../shared/model/expert-parts.js';

const EXPERTS = 8;
const DIGEST = 'ab'.repeat(32);
const emptyCounts = (): ActivationCounts => new ActivationCounts(DIGEST, EXPERTS);
const cacheOf = (
  capacities: Partial<PoolCapacities>,
  counts = emptyCounts(),
  policy: ExpertPolicy = 'planned',
): ExpertCache =>
  new ExpertCache({
    policy,
    experts: EXPERTS,
    capacities: { ...NO_CAPACITIES, ...capacities },
    bytes: 77,
    counts,
    random: () => 0,
    replanPasses: 2,
    expertBytes: { full: 10, compressed: 7 },
  });
const request = (requestId: number, layer: number, expert: number, sequence = 1): Execute =>
  plainExecute({ requestId, epoch: 3, sequence, position: requestId, layer, expert });

describe('worker: the expert cache', () => {
  it('serves a cached expert without a load, and counts requests', async () => {
    const counts = emptyCounts();
    const cache = cacheOf({ full: 1, signMantissa: 1 }, counts);
    const slots = new TestSlots(2);
    const service = testService(slots, 4, RUNTIME, cache);
    service.changeEpoch([0]);
    const replies: WorkerReply[] = [];
    for (const [index, [layer, expert]] of [
      [0, 5],
      [0, 5],
      [0, 2],
      [0, 2],
      [1, 7],
    ].entries()) {
      service.execute(request(index, layer as number, expert as number), (reply) => replies.push(reply));
      for (const slot of [...slots.pending.keys()]) await slots.endLoad(slot);
      await settle();
    }
    assert.equal(replies.filter(({ kind }) => kind === 'result').length, 5);
    const loads = slots.calls.filter((call) => call.startsWith('load'));
    assert.deepEqual(loads, ['load 1 5', 'load 0 2', 'load 0 2', 'load 0 107']);
    assert.deepEqual(
      slots.requests.slice(1, 3).map(({ parts }) => parts.signMantissa),
      [
        { from: 'storage', entry: 0 },
        { from: 'entry', entry: 0 },
      ],
    );
    assert.deepEqual([...counts.of(0)], [0, 0, 2, 0, 0, 2, 0, 0]);
    assert.deepEqual(counts.layers, [0], 'of layers that other workers serve in decode nothing is recorded');
    const { slots: working, cache: status } = service.counters;
    assert.equal(working, 1);
    assert.deepEqual(status, {
      policy: 'planned',
      bytes: 77,
      capacities: { ...NO_CAPACITIES, full: 1, signMantissa: 1 },
      kept: { ...NO_CAPACITIES, full: 1, signMantissa: 1 },
      hits: { ...NO_CAPACITIES, full: 1, signMantissa: 1 },
      misses: 3,
      packed: 0,
    });
    await service.close();
  });

  it('reports changes of its content with an answer, and all of it to the next main', async () => {
    const slots = new TestSlots(3);
    const service = testService(slots, 4, RUNTIME, cacheOf({ full: 2 }));
    service.changeEpoch([0]);
    const reports: (readonly number[] | null)[] = [];
    let requests = 0;
    const run = async (expert: number): Promise<void> => {
      service.execute(request(requests++, 0, expert), (reply) => {
        if (reply.kind === 'result') reports.push(reply.result.kept?.experts ?? null);
      });
      for (const slot of [...slots.pending.keys()]) await slots.endLoad(slot);
      await settle();
    };
    for (const expert of [5, 5, 2, 2]) await run(expert);
    assert.deepEqual(reports, [[5], null, [2, 5], null]);
    service.loseMain();
    await settle();
    service.changeEpoch([0]);
    await run(5);
    assert.deepEqual(reports.slice(4), [[2, 5]], 'the next main knows of nothing that is kept');
    await service.close();
  });

  it('orders the loads of executes that arrive together', async () => {
    const slots = new TestSlots(3);
    const service = testService(slots, 4);
    for (const expert of [1, 2, 3]) service.execute(request(expert, 0, expert), () => undefined);
    await settle();
    assert.deepEqual(slots.calls.slice(3).sort(), ['reorder 0', 'reorder 1', 'reorder 2']);
    assert.ok(slots.requests.every(({ urgent }) => urgent));
    await service.close();
  });

  it('spreads its pools over the served layers and restores earlier counts', () => {
    const counts = emptyCounts();
    for (let use = 0; use < 5; use++) counts.add(3, 6, 1);
    const cache = cacheOf({ full: 3 }, counts);
    const capacities = cache.capacitiesFor([3, 7]);
    assert.deepEqual([...capacities.values()].map(({ full }) => full).sort(), [1, 2]);
    cache.decisions.setCapacities(new Map([[3, { ...NO_CAPACITIES, full: 1 }]]));
    const use = (expert: number): number | null => {
      const [taken] = cache.decisions.acquire(3, [expert]);
      assert.ok(taken);
      if (taken.state !== 'full') cache.decisions.loaded(taken, { loaded: true, cached: perPart(() => false) });
      cache.decisions.endUse(taken);
      return taken.fullEntry;
    };
    assert.notEqual(use(6), null);
    assert.equal(use(2), null, 'less frequent than what was counted in an earlier run');
  });

  it('shrinks under policy residency once loads prove to cost nothing, between two passes', async () => {
    const cache = cacheOf({ full: 2 }, emptyCounts(), 'residency');
    const slots = new TestSlots(3);
    const service = testService(slots, 4, RUNTIME, cache);
    service.changeEpoch([0]);
    const loadsAfter: number[] = [];
    for (let pass = 0; pass < 12; pass += 1) {
      service.execute(request(pass, 0, 5), () => undefined);
      for (const slot of [...slots.pending.keys()]) await slots.endLoad(slot);
      await settle();
      loadsAfter.push(slots.calls.filter((call) => call.startsWith('load')).length);
    }
    assert.deepEqual(loadsAfter.slice(0, 3), [1, 1, 1], 'kept until enough passes have been seen');
    assert.ok((loadsAfter.at(-1) ?? 0) > 1, 'then it is given up');
    assert.equal(service.counters.cache?.kept.full, 0);
    await service.close();
  });
});

describe('worker: the plan of the cache', () => {
  const load: LoadTimes = {
    signMantissaReadMs: 10,
    exponentReadMs: 1.5,
    decompressMs: 2,
    compressionRatio: 0.3,
    threads: 4,
    shards: 2,
    tensors: 3,
  };
  const base: WorkerCacheRequest = {
    budgetBytes: 4050,
    entryBytes: { full: 1000, exponent: 150, signMantissa: 500 },
    layers: 4,
    experts: EXPERTS,
    activated: 1,
    counts: emptyCounts(),
  };

  it('has as many full experts as the budget holds, and no more than exist', () => {
    assert.deepEqual(planFullExperts(base).capacities, { ...NO_CAPACITIES, full: 4 });
    assert.equal(planFullExperts({ ...base, budgetBytes: 1e9 }).capacities.full, 32);
  });

  it('with all pools stays within the budget and shows the cost without a cache', () => {
    const plan = planForMachine(base, { load, costs: { executeMs: 1, startMs: 0, interference: 0 } });
    assert.ok(plan.usedBytes <= base.budgetBytes);
    assert.equal(plan.usedBytes, poolBytes(plan.capacities, base.entryBytes));
    assert.ok(plan.expected !== null && plan.expected.plannedMs < plan.expected.cachelessMs);
  });

  it('expects more of a cache when a few experts were counted much more often than others', () => {
    const counts = emptyCounts();
    for (const layer of [0, 2]) {
      counts.add(layer, 3, 1000);
      counts.add(layer, 5, 10);
    }
    const flat = planForMachine(base, { load, costs: { executeMs: 1, startMs: 0, interference: 0 } });
    const skewed = planForMachine({ ...base, counts }, { load, costs: { executeMs: 1, startMs: 0, interference: 0 } });
    assert.ok(flat.expected !== null && skewed.expected !== null);
    assert.ok(skewed.expected.plannedMs < 0.5 * flat.expected.plannedMs);
  });

  it('refuses configured pools that do not fit', () => {
    requirePools(100, 100, 2);
    assert.throws(() => requirePools(101, 100, 2), {
      code: 'DEVICE_OUT_OF_MEMORY',
      message: /take 101 bytes .* beside 2 slots .* 100 left/,
    });
  });
});

describe('worker: the record of activations', () => {
  const model = { packDigest: DIGEST, experts: EXPERTS };
  let directory: string;
  let log: TestLog;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-record-'));
    log = new TestLog();
  });

  afterEach(async () => {
    await Promise.all(records.splice(0).map((record) => record.close()));
    await chmod(directory, 0o700);
    await rm(directory, { recursive: true, force: true });
  });

  const records: ActivationRecord[] = [];
  const open = async (path: string): Promise<ActivationRecord> => {
    const record = await ActivationRecord.open(path, model, RUNTIME, log.logger('worker'));
    records.push(record);
    return record;
  };

  it('survives a restart', async () => {
    const path = join(directory, 'deeper', 'counts.json');
    const first = await open(path);
    first.counts.add(1, 4, 3);
    await first.close();
    const second = await open(path);
    assert.deepEqual([...second.counts.of(1)], [0, 0, 0, 0, 3, 0, 0, 0]);
    second.counts.add(1, 4, 1);
    await second.write();
    assert.equal((await open(path)).counts.total, 4);
    await second.close();
    assert.deepEqual(log.matching('warn'), []);
  });

  it('is not written when nothing was counted', async () => {
    const path = join(directory, 'counts.json');
    await (await open(path)).close();
    await assert.rejects(readFile(path), { code: 'ENOENT' });
  });

  it('starts again with a message where the file is damaged or of another model', async () => {
    const path = join(directory, 'counts.json');
    await writeFile(path, '{"format": "odmoe-activ');
    assert.equal((await open(path)).counts.total, 0);
    const other = new ActivationCounts('cd'.repeat(32), EXPERTS);
    other.add(0, 1, 9);
    await writeFile(path, JSON.stringify(other.toJson()));
    assert.equal((await open(path)).counts.total, 0);
    assert.equal(log.matching('counting begins anew').length, 2);
  });

  it('causes one line in the log where it cannot be written', async () => {
    const path = join(directory, 'a-file', 'counts.json');
    await writeFile(join(directory, 'a-file'), 'in the way');
    const record = await open(path);
    for (let round = 0; round < 3; round++) {
      record.counts.add(0, 0, 1);
      await record.write();
    }
    await record.close();
    assert.equal(log.matching('activation counts could not be recorded').length, 1);
  });
});
