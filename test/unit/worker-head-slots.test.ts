import assert from 'node:assert/strict';
import { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { WorkerReply } from '../../shared/wire/messages.js';
import { ExpertCache } from '../../worker-node/cache/expert-cache.js';
import { withHeadEntries } from '../../worker-node/cache/worker-cache-plan.js';
import { ExpertService } from '../../worker-node/executor/expert-service.js';
import { RUNTIME } from '../wall.js';
import { plainExecute } from './wire-messages.js';
import { TestSlots, settle, silentLog, testSource } from './worker-test-slots.js';

const EXPERTS = 4;
const LAYERS = [0, 1];
const HEAD = 2;
const ALL = [...LAYERS, HEAD];
const HEAD_SLOTS = 3;
const OF_MODEL = LAYERS.length * EXPERTS;
const SLOT_BYTES = new TestSlots(1).slotBytes;

/** A worker with one working slot, and a cache that holds the whole model and most of the head. */
class HeadWorker {
  readonly slots = new TestSlots(1 + OF_MODEL + HEAD_SLOTS);
  readonly service: ExpertService;
  readonly replies: WorkerReply[] = [];
  private requests = 0;

  constructor(packs = false) {
    const full = OF_MODEL + HEAD_SLOTS;
    const cache = new ExpertCache({
      policy: 'lru',
      experts: EXPERTS,
      capacities: { ...NO_CAPACITIES, full },
      bytes: full * SLOT_BYTES,
      counts: new ActivationCounts('ab'.repeat(32), EXPERTS),
      random: () => 0,
      replanPasses: 2,
      expertBytes: { full: SLOT_BYTES, compressed: SLOT_BYTES },
    });
    this.service = new ExpertService(
      { slots: this.slots, maxRows: 4, decompressionThreads: 1, cache, packs, headSlots: HEAD_SLOTS },
      { source: testSource, runtime: RUNTIME, log: silentLog, supply: null, headLayer: HEAD },
    );
  }

  async run(layer: number, expert: number): Promise<void> {
    const requestId = (this.requests += 1);
    const request = plainExecute({ requestId, epoch: 3, sequence: 1, position: requestId, layer, expert });
    this.service.execute(request, (reply) => this.replies.push(reply));
    for (const slot of [...this.slots.pending.keys()]) await this.slots.endLoad(slot);
    await settle();
  }

  /** The calls since the last time that take or give back memory. */
  memoryCalls(): string[] {
    return this.slots.calls.splice(0).flatMap((call) => /^(let go|take)/.exec(call)?.[0] ?? []);
  }

  get held(): { full: number | undefined; bytes: number | undefined } {
    const { cache } = this.service.counters;
    return { full: cache?.capacities?.full, bytes: cache?.bytes };
  }
}

const times = (count: number, call: string): string[] => Array.from({ length: count }, () => call);
const WITHOUT_HEAD = { full: OF_MODEL, bytes: OF_MODEL * SLOT_BYTES };
const WITH_HEAD = { full: OF_MODEL + HEAD_SLOTS, bytes: (OF_MODEL + HEAD_SLOTS) * SLOT_BYTES };

describe("worker: the cache's slots for the experts of the model's own head", () => {
  it('have memory only while main asks for such experts', async () => {
    const worker = new HeadWorker();
    assert.deepEqual(worker.memoryCalls(), times(HEAD_SLOTS, 'let go'));
    worker.service.changeEpoch(ALL);
    for (const layer of LAYERS) await worker.run(layer, 1);
    assert.deepEqual(worker.held, WITHOUT_HEAD);
    assert.deepEqual(worker.memoryCalls(), [], 'the experts of the model need none of them');
    await worker.run(HEAD, 2);
    assert.deepEqual(worker.memoryCalls(), times(HEAD_SLOTS, 'take'));
    await worker.run(HEAD, 2);
    worker.service.changeEpoch(ALL);
    assert.deepEqual(worker.memoryCalls(), [], 'another placement of the same main changes nothing');
    assert.deepEqual(worker.held, WITH_HEAD);
    assert.equal(worker.replies.filter(({ kind }) => kind === 'result').length, 4);
    const { loads, headLoads } = worker.service.counters;
    assert.deepEqual([loads, headLoads], [3, 1]);
    worker.service.loseMain();
    await settle();
    worker.service.changeEpoch(ALL);
    assert.deepEqual(worker.memoryCalls(), times(HEAD_SLOTS, 'let go'), 'the next main may run the head itself');
    assert.deepEqual(worker.held, WITHOUT_HEAD);
    await worker.service.close();
  });

  it('stay without memory where the worker serves so few layers that the head has room among the others', async () => {
    const worker = new HeadWorker();
    worker.memoryCalls();
    worker.service.changeEpoch([0, HEAD]);
    await worker.run(HEAD, 2);
    assert.deepEqual(worker.memoryCalls(), []);
    await worker.service.close();
  });

  it('may get no memory, and the experts of the head run nevertheless', async () => {
    const worker = new HeadWorker();
    worker.memoryCalls();
    worker.service.changeEpoch(ALL);
    worker.slots.takeFault = new OdmoeError('DEVICE_OUT_OF_MEMORY', 'others have it');
    for (const expert of [0, 1, 2, 3, 0]) await worker.run(HEAD, expert);
    assert.deepEqual(worker.memoryCalls(), []);
    assert.equal(worker.replies.filter(({ kind }) => kind === 'result').length, 5);
    assert.deepEqual(worker.held, WITHOUT_HEAD);
    await worker.service.close();
  });

  it('keep the memory that they have taken where cached experts are recoded', async () => {
    const worker = new HeadWorker(true);
    assert.deepEqual(worker.memoryCalls(), times(HEAD_SLOTS, 'let go'));
    worker.service.changeEpoch(ALL);
    await worker.run(HEAD, 2);
    assert.deepEqual(worker.memoryCalls(), times(HEAD_SLOTS, 'take'));
    worker.service.loseMain();
    await settle();
    worker.service.changeEpoch(ALL);
    assert.deepEqual(worker.memoryCalls(), []);
    await worker.service.close();
  });

  it('are as many as the plan for the model leaves room for', () => {
    const plan = { capacities: { ...NO_CAPACITIES, full: 3, compressed: 2 }, usedBytes: 44, expected: null };
    const entryBytes = { full: 10, exponent: 3, signMantissa: 4 };
    const room = (budgetBytes: number): ReturnType<typeof withHeadEntries> =>
      withHeadEntries(plan, { budgetBytes, entryBytes, experts: EXPERTS });
    for (const budgetBytes of [44, 53]) assert.deepEqual(room(budgetBytes), { plan, headEntries: 0 });
    const { plan: planned, headEntries } = room(69);
    assert.equal(headEntries, 2);
    assert.deepEqual(planned, { ...plan, capacities: { ...plan.capacities, full: 5 }, usedBytes: 64 });
    assert.equal(room(1000).headEntries, EXPERTS);
  });
});
