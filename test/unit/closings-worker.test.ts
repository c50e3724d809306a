import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { living } from '../../shared/base/runtime/living.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { ActivationRecord } from '../../worker-node/cache/activation-record.js';
import { ExpertCache } from '../../worker-node/cache/expert-cache.js';
import { ExpertRecoder } from '../../worker-node/cache/expert-recoder.js';
import { HostMemory, type HostMemoryOptions } from '../../worker-node/cache/host-memory.js';
import { ExpertService } from '../../worker-node/executor/expert-service.js';
import { livingBeyond } from '../left-behind.js';
import { RUNTIME } from '../wall.js';
import { type Closing, HeldWork, itWaitsForWork, leavesNothing } from './held-work.js';
import { plainExecute, plainPrediction } from './wire-messages.js';
import { settle, silentLog, TestSlots, testSource } from './worker-test-slots.js';

const DIGEST = '0'.repeat(64);
const { experts: EXPERTS } = testSource.shape;

/** Slots whose cancelled work ends only when the test says so. */
class LateSlots extends TestSlots {
  override readonly cancelsEndLate = true;
  private disposed = false;

  override dispose(): void {
    assert.ok(!this.disposed, 'slots are disposed of once');
    this.disposed = true;
    super.dispose();
  }

  override cancelHold(): void {
    this.calls.push('cancel hold');
  }

  override cancelPack(): void {
    this.calls.push('cancel pack');
  }
}

/** Settings by which host memory has room for all experts. */
const hostMemoryOptions = (): HostMemoryOptions => ({
  setting: 4096 * EXPERTS,
  source: testSource,
  isHere: () => true,
  counts: new ActivationCounts(DIGEST, EXPERTS),
});

async function fillingHostMemory(): Promise<Closing> {
  const slots = new LateSlots(1);
  const memory = new HostMemory(hostMemoryOptions(), {
    slots,
    runtime: RUNTIME,
    log: silentLog,
    rates: () => null,
    cached: () => [],
    numberOf: (layer, expert) => layer * 100 + expert,
  });
  memory.serve([1]);
  slots.endHold(true);
  await settle();
  assert.equal(slots.calls.at(-1), 'hold 101');
  return {
    close: () => memory.close(),
    letGo: () => {
      assert.equal(slots.calls.at(-1), 'cancel hold');
      slots.endHold(false);
    },
    holds: () => (slots.calls.includes('drop 100') ? [] : ['expert 100']),
  };
}

async function recoding(): Promise<Closing> {
  const [clock, slots] = [new VirtualClock(), new LateSlots(1)];
  const recoder = new ExpertRecoder({
    slots,
    log: silentLog,
    isCached: () => true,
    isIdle: () => true,
    runtime: new VirtualRuntime(clock, 1),
  });
  recoder.loaded(0);
  recoder.worked();
  await clock.run(() => slots.recoding !== null, { events: 10 });
  const letGo = (): void => {
    assert.equal(slots.calls.at(-1), 'cancel pack');
    slots.endPack('givenUp');
  };
  return { close: () => recoder.close(), letGo };
}

/** The service is closed; its slots are disposed of at the end. */
function serviceOf(slots: TestSlots, service: ExpertService, letGo: () => void): Closing {
  const holds = (): string[] => (slots.calls.includes('dispose') ? [] : ['the slots']);
  return { close: () => service.close(), letGo, holds };
}

function loading(): Closing {
  const slots = new LateSlots(1);
  const service = new ExpertService(slotsOf(slots), { ...AROUND, runtime: RUNTIME });
  service.expect('shadow', plainPrediction({ epoch: 3, layer: 0, experts: [1] }));
  return serviceOf(slots, service, () => slots.endCancelled(0));
}

async function executing(): Promise<Closing> {
  const [slots, work] = [new LateSlots(1), new HeldWork()];
  slots.execute = (...args) => work.whenLetGo(() => TestSlots.prototype.execute.apply(slots, args));
  const service = new ExpertService(slotsOf(slots), { ...AROUND, runtime: RUNTIME });
  service.execute(plainExecute({ requestId: 1, epoch: 3, layer: 0, expert: 1 }), () => undefined);
  work.holdNext();
  await slots.endLoad(0);
  assert.equal(work.underWay, 1);
  return serviceOf(slots, service, () => work.letGo());
}

function filling(): Closing {
  const slots = new LateSlots(1);
  const service = new ExpertService(slotsOf(slots), {
    ...AROUND,
    runtime: RUNTIME,
    hostMemory: hostMemoryOptions(),
  });
  service.changeEpoch([0]);
  assert.deepEqual(slots.calls, ['hold 0']);
  return serviceOf(slots, service, () => slots.endHold(false));
}

async function recodingKept(): Promise<Closing> {
  const [clock, slots] = [new VirtualClock(), new LateSlots(2)];
  const runtime = new VirtualRuntime(clock, 1);
  const cache = new ExpertCache({
    policy: 'lru',
    experts: EXPERTS,
    capacities: { ...NO_CAPACITIES, full: 1 },
    bytes: 10,
    counts: new ActivationCounts(DIGEST, EXPERTS),
    random: () => 0,
    replanPasses: 1000,
    expertBytes: { full: 10, compressed: 7 },
  });
  const service = new ExpertService({ ...slotsOf(slots), cache, packs: true }, { ...AROUND, runtime });
  service.changeEpoch([0]);
  service.execute(plainExecute({ requestId: 1, epoch: 3, layer: 0, expert: 1 }), () => undefined);
  for (const slot of [...slots.pending.keys()]) await slots.endLoad(slot);
  await clock.run(() => slots.recoding !== null, { events: 100 });
  return serviceOf(slots, service, () => slots.endPack('givenUp'));
}

const AROUND = { source: testSource, log: silentLog, supply: null };
const slotsOf = (slots: TestSlots): ConstructorParameters<typeof ExpertService>[0] => ({
  slots,
  maxRows: 4,
  decompressionThreads: 1,
  cache: null,
  packs: false,
});

describe('closing a worker waits for', () => {
  let directory: string;
  beforeEach(() => (directory = mkdtempSync(join(tmpdir(), 'odmoe-closing-'))));
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  /** `begin` begins the work that writes. */
  async function recording(begin: (record: ActivationRecord) => void): Promise<Closing> {
    const work = new HeldWork();
    const path = join(directory, 'counts.json');
    const record = await ActivationRecord.open(path, { packDigest: DIGEST, experts: 8 }, work.runtime(), silentLog);
    record.counts.add(0, 1, 5);
    work.holdNext();
    begin(record);
    const letGo = (): void => {
      assert.equal(work.underWay, 1, 'one write at a time');
      work.letGo();
    };
    return { close: () => record.close(), letGo };
  }

  itWaitsForWork({
    'an expert that is being read into host memory': fillingHostMemory,
    'an expert that is being recoded': recoding,
    'the last write of what was counted': () => recording(() => undefined),
    'a write of what was counted that has begun': () => recording((record) => void record.write()),
    'the load of an expert, before its slots go': loading,
    'an expert that runs, before its slots go': executing,
    'host memory that is being filled, before its slots go': filling,
    'a kept expert that is being recoded, before its slots go': recodingKept,
  });
});

describe('closing a worker', () => {
  it('ends the waits for the end of the turn and for messages about the current layer', () =>
    leavesNothing(async () => {
      const before = living().names();
      const slots = new TestSlots(1);
      const service = new ExpertService(slotsOf(slots), { ...AROUND, runtime: RUNTIME });
      // The execute needs the slot of a prediction, which may be right or wrong.
      service.expect('shadow', plainPrediction({ epoch: 3, layer: 1, experts: [1] }));
      await slots.endLoad(0);
      service.execute(plainExecute({ requestId: 1, epoch: 3, layer: 0, expert: 2 }), () => undefined);
      const waits = livingBeyond(before).map((name) => /turnEnd|decisionWaitEnd|ordering/.exec(name)?.[0]);
      assert.deepEqual(waits.sort(), ['decisionWaitEnd', 'ordering', 'turnEnd']);
      await service.close();
    }));
});
