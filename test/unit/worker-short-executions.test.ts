import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  QUIET_EXECUTIONS,
  QUIET_EXECUTIONS_MS,
  SHORT_EXECUTION_ROWS,
  SHORT_EXECUTIONS_MS,
  ShortExecutions,
} from '../../worker-node/executor/expert-executor.js';
import type { WorkerReply } from '../../shared/wire/messages.js';
import { plainExecute, plainPrediction } from './wire-messages.js';
import { settle, testService, TestSlots } from './worker-test-slots.js';

function afterRuns(count: number, executeMs: number, loaded = false): ShortExecutions {
  const short = new ShortExecutions();
  for (let index = 0; index < count; index++) short.ran(1, executeMs, loaded);
  return short;
}

describe('worker: short executions', () => {
  it('do not happen before some have been measured, and never with many rows', () => {
    assert.ok(!new ShortExecutions().isShort(1, 1));
    assert.ok(!afterRuns(1, 0.01).isShort(1, 1));
    const short = afterRuns(8, 0.01, true);
    assert.ok(short.isShort(SHORT_EXECUTION_ROWS, 1));
    assert.ok(!short.isShort(SHORT_EXECUTION_ROWS + 1, 1));
    for (let index = 0; index < 100; index++) short.ran(64, 50, true);
    assert.ok(short.isShort(1, 1), 'executions of many rows tell nothing of those of a few');
  });

  it('cover the experts of a message together, within a bound that is wider where nothing is loaded', () => {
    const half = SHORT_EXECUTIONS_MS / 2;
    assert.ok(afterRuns(8, half, true).isShort(1, 2));
    assert.ok(!afterRuns(8, half, true).isShort(1, 3));
    assert.ok(!afterRuns(QUIET_EXECUTIONS - 1, SHORT_EXECUTIONS_MS * 2).isShort(1, 1));
    const quiet = afterRuns(QUIET_EXECUTIONS, SHORT_EXECUTIONS_MS * 2);
    assert.ok(quiet.isShort(1, 1));
    quiet.ran(1, SHORT_EXECUTIONS_MS * 2, true);
    assert.ok(!quiet.isShort(1, 1), 'loads are there again');
  });

  it('never take longer than the bound, as far as the latest ones predict', () => {
    const run = fc.record({ ms: fc.double({ min: 0, max: 10, noNaN: true }), loaded: fc.boolean() });
    fc.assert(
      fc.property(fc.array(run, { maxLength: 200 }), fc.integer({ min: 1, max: 16 }), (runs, experts) => {
        const short = new ShortExecutions();
        for (const { ms, loaded } of runs) short.ran(1, ms, loaded);
        const leastMs = Math.min(...runs.map(({ ms }) => ms));
        if (short.isShort(1, experts)) assert.ok(experts * leastMs <= QUIET_EXECUTIONS_MS + 1e-9);
      }),
    );
  });
});

/** Slots that record where experts ran. */
class HereSlots extends TestSlots {
  isBusy = false;
  executeHere = (slot: number, rows: number, hidden: Uint8Array, output: Uint8Array): number | null => {
    if (this.isBusy) return null;
    this.calls.push(`here ${slot} ${rows}`);
    if (this.executeFault !== null) throw this.executeFault;
    output.set(hidden);
    return 0.01;
  };

  override async execute(...args: Parameters<TestSlots['execute']>): Promise<{ executeMs: number }> {
    await super.execute(...args);
    return { executeMs: 0.01 };
  }
}

describe('worker: experts on the thread of the event loop', () => {
  let slots: HereSlots;
  let replies: WorkerReply[];
  let service: ReturnType<typeof testService>;
  const runLayer = async (layer: number, experts: number[]): Promise<string[]> => {
    slots.calls.length = 0;
    const asked = experts.map((expert) => ({ expert, rows: [], last: true }));
    const request = { ...plainExecute({ requestId: layer + 1, layer, expert: 0 }), experts: asked };
    service.execute(request, (reply) => replies.push(reply));
    await settle();
    return slots.calls.filter((call) => call.startsWith('here') || call.startsWith('execute'));
  };
  const load = async (layer: number, experts: number[]): Promise<void> => {
    service.expect('shadow', plainPrediction({ layer, experts }));
    await settle();
    for (const slot of [...slots.pending.keys()]) await slots.endLoad(slot);
  };

  beforeEach(async () => {
    slots = new HereSlots(4);
    replies = [];
    service = testService(slots, 8);
    for (let layer = 0; layer < 4; layer++) {
      await load(layer, [1]);
      assert.equal((await runLayer(layer, [1]))[0]?.split(' ')[0], 'execute', 'nothing is known of them yet');
    }
  });

  it('run one after another, and their answers leave together', async () => {
    await load(4, [1, 2]);
    const calls = await runLayer(4, [1, 2]);
    assert.deepEqual(
      calls.map((call) => call.split(' ')[0]),
      ['here', 'here'],
    );
    const last = replies.at(-1);
    assert.deepEqual(last?.kind === 'result' && last.result.experts.map(({ expert }) => expert), [1, 2]);
  });

  it('run elsewhere while the device is busy', async () => {
    await load(4, [1]);
    slots.isBusy = true;
    assert.equal((await runLayer(4, [1]))[0]?.split(' ')[0], 'execute');
    assert.equal(replies.length, 5);
  });

  it('begin after the loads of their message', async () => {
    await load(4, [1]);
    await runLayer(4, [1, 3]);
    assert.deepEqual(
      slots.calls.map((call) => call.split(' ')[0]),
      ['load', 'here'],
    );
  });

  it('answer with the error that occurred', async () => {
    await load(4, [1]);
    slots.executeFault = new Error('no');
    await runLayer(4, [1]);
    const last = replies.at(-1);
    assert.equal(last?.kind === 'result' && last.result.experts[0]?.failure?.code, 'INTERNAL');
  });
});
