import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Execute, ExpertFailure, ExpertResult, WorkerReply } from '../../shared/wire/messages.js';
import { MAX_HELD_EXPERTS } from '../../worker-node/executor/expert-executor.js';
import type { ExpertService } from '../../worker-node/executor/expert-service.js';
import { plainExecute, plainPrediction, plainRelease, type PlainExecute } from './wire-messages.js';
import { TestSlots, settle, testService } from './worker-test-slots.js';
import { runtimeAt } from '../wall.js';

interface Setting {
  slots: TestSlots;
  service: ExpertService;
  replies: WorkerReply[];
  clock: { ms: number };
}

const setting = (slotCount: number, maxRows = 4): Setting => {
  const slots = new TestSlots(slotCount);
  const clock = { ms: 0 };
  return {
    slots,
    clock,
    service: testService(
      slots,
      maxRows,
      runtimeAt(() => clock.ms),
    ),
    replies: [],
  };
};

const request = (requestId: number, layer: number, expert: number, fields: Partial<PlainExecute> = {}): Execute =>
  plainExecute({ requestId, epoch: 3, layer, expert, ...fields });
/** The result of the only expert in a reply. */
const only = (reply: WorkerReply | undefined): ExpertResult => {
  assert.ok(reply?.kind === 'result' && reply.result.last && reply.result.experts.length === 1);
  return reply.result.experts[0] ?? assert.fail('no expert');
};
const failureOf = (reply: WorkerReply | undefined): ExpertFailure => only(reply).failure ?? assert.fail('no failure');
const run = ({ service, replies }: Setting, execute: Execute): void =>
  service.execute(execute, (reply) => replies.push(reply));
const predict = ({ service }: Setting, layer: number, experts: number[]): void =>
  service.expect('shadow', plainPrediction({ epoch: 3, layer, experts }));

describe('worker: the expert service', () => {
  it('answers with the output, whether the expert was loaded before, and its stall time', async () => {
    const here = setting(1);
    predict(here, 0, [5]);
    here.clock.ms = 10;
    run(here, request(77, 0, 5));
    here.clock.ms = 25;
    await here.slots.endLoad(0);
    assert.deepEqual(here.replies, [
      {
        kind: 'result',
        result: {
          requestId: 77,
          epoch: 3,
          hiddenSize: 1,
          dtype: 'TENSOR_TYPE_F32',
          last: true,
          kept: null,
          experts: [
            {
              expert: 5,
              rows: 1,
              wasLoaded: false,
              stallUs: 15_000,
              executeUs: 1000,
              loadUs: 2000,
              loadedBeforeUs: 0,
              begunUs: 15_000,
              answeredUs: 15_000,
              calledUs: 15_000,
              endedUs: 15_000,
              output: Buffer.from([6, 7, 8, 9]),
              failure: null,
            },
          ],
        },
      },
    ]);
    predict(here, 1, [2]);
    await here.slots.endLoad(0);
    here.clock.ms = 28;
    run(here, request(78, 1, 2));
    await settle();
    const second = only(here.replies[1]);
    assert.deepEqual([second.wasLoaded, second.stallUs], [true, 0]);
    assert.deepEqual([second.loadUs, second.loadedBeforeUs], [2000, 3000]);
    const { loads, executions, evictions, reloads, storageReadBytes, loadMsMean, slotsInUse } = here.service.counters;
    assert.deepEqual(
      { loads, executions, evictions, reloads, storageReadBytes, loadMsMean, slotsInUse },
      { loads: 2, executions: 2, evictions: 2, reloads: 0, storageReadBytes: 14, loadMsMean: 2, slotsInUse: 0 },
    );
  });

  it('adds the times of both loads of an expert whose slices come in two, and reports each time once', async () => {
    const slots = new TestSlots(1);
    const clock = { ms: 0 };
    const runtime = runtimeAt(() => clock.ms);
    const rule = { kind: 'critical', theta: 0.5 } as const;
    const service = testService(slots, 4, runtime, null, undefined, false, rule);
    const here: Setting = { slots, clock, service, replies: [] };
    const loadUsOf = (index: number): number => only(here.replies[index]).loadUs;
    run(here, request(1, 0, 5));
    await slots.endLoad(0, null, 3);
    await slots.endLoad(0, null, 4);
    assert.equal(loadUsOf(0), 7000);
    assert.deepEqual([service.counters.loads, service.counters.loadMsMean], [1, 7]);
    run(here, request(2, 1, 6, { last: false, upper: [0] }));
    await slots.endLoad(0, null, 3);
    assert.equal(loadUsOf(1), 3000);
    run(here, request(3, 1, 6));
    await slots.endLoad(0, null, 5);
    assert.equal(loadUsOf(2), 5000, 'the upper slices have been reported already');
    assert.deepEqual([service.counters.loads, service.counters.loadMsMean], [2, 7.5]);
  });

  it('answers all waiting requests when the device is lost, reports it once, and takes nothing more', async () => {
    const lost = new OdmoeError('DEVICE_LOST', 'the device is gone');
    for (const where of ['execute', 'load'] as const) {
      const errors: OdmoeError[] = [];
      const slots = new TestSlots(2);
      const service = testService(slots, 4, undefined, null, (error) => errors.push(error));
      const here = { slots, service, replies: [] as WorkerReply[], clock: { ms: 0 } };
      run(here, request(1, 0, 5));
      run(here, request(2, 0, 6));
      run(here, request(3, 0, 7));
      if (where === 'execute') slots.executeFault = lost;
      await slots.endLoad(0, where === 'load' ? lost : null);
      const answered = here.replies.map((reply) =>
        reply.kind === 'result' ? [reply.result.requestId, failureOf(reply).code] : [],
      );
      assert.deepEqual(answered.sort(), [
        [1, 'DEVICE_LOST'],
        [2, 'DEVICE_LOST'],
        [3, 'DEVICE_LOST'],
      ]);
      assert.throws(() => run(here, request(4, 0, 5)), { code: 'DEVICE_LOST' });
      await slots.endLoad(1, lost);
      assert.deepEqual(
        errors.map(({ code }) => code),
        ['DEVICE_LOST'],
      );
    }
  });

  it('continues with the next message after a failed one', async () => {
    const here = setting(1);
    predict(here, 0, [5]);
    here.slots.cancelFault = new Error('the device does not cancel');
    const release = plainRelease({ epoch: 3, layer: 0, experts: [5] });
    assert.throws(() => here.service.release(release), /does not cancel/);
    here.slots.cancelFault = null;
    await here.slots.endLoad(0);
    run(here, request(7, 1, 2));
    await here.slots.endLoad(0);
    assert.equal(here.replies[0]?.kind, 'result');
  });

  it('runs more rows than the slots take in pieces, with the same output', async () => {
    const here = setting(1, 2);
    const hidden = Buffer.from(Array.from({ length: 20 }, (_, index) => index));
    run(here, request(1, 0, 3, { rows: 5, hidden }));
    await here.slots.endLoad(0);
    assert.deepEqual(here.slots.calls.slice(1), ['execute 0 2', 'execute 0 2', 'execute 0 1']);
    assert.deepEqual(
      [...only(here.replies[0]).output],
      [...hidden].map((value) => value + 3),
    );
  });

  it('preempts a wrong prediction only after all messages of the turn have arrived', async () => {
    const here = setting(1);
    predict(here, 0, [1, 2]);
    await here.slots.endLoad(0);
    run(here, request(1, 0, 2));
    run(here, request(2, 0, 1));
    await settle();
    await here.slots.endLoad(0);
    assert.deepEqual(here.slots.calls, ['load 0 1', 'execute 0 1', 'load 0 2', 'execute 0 1']);
    run(here, request(3, 2, 7));
    predict(here, 4, [1]);
    await settle();
    assert.equal(here.slots.calls.at(-1), 'load 0 207');
  });

  it('gives an execute the slot of a prediction that was not withdrawn', async () => {
    const here = setting(1);
    predict(here, 3, [6]);
    run(here, request(1, 0, 2));
    assert.deepEqual(here.slots.calls, ['load 0 306']);
    await settle();
    assert.deepEqual(here.slots.calls, ['load 0 306', 'cancel 0', 'load 0 2']);
    await here.slots.endLoad(0);
    assert.equal(here.replies[0]?.kind, 'result');
    assert.equal(here.slots.calls.at(-1), 'load 0 306');
  });

  it('answers a failed load with its code and serves the next request', async () => {
    const here = setting(1);
    run(here, request(5, 0, 2));
    await here.slots.endLoad(0, new OdmoeError('PACK_CORRUPT', 'chunk 3 of experts.bin fails its checksum'));
    const { code, message } = failureOf(here.replies[0]);
    assert.equal(code, 'PACK_CORRUPT');
    assert.match(message, /Expert 2 of layer 0 .* chunk 3 of experts\.bin/);
    run(here, request(6, 0, 2));
    await here.slots.endLoad(0);
    assert.equal(here.replies[1]?.kind, 'result');
  });

  it('answers a failed execution and frees the slot', async () => {
    const here = setting(1);
    here.slots.executeFault = new Error('device lost');
    run(here, request(5, 0, 2));
    await here.slots.endLoad(0);
    assert.deepEqual(failureOf(here.replies[0]), { code: 'INTERNAL', message: 'device lost' });
    assert.equal(here.service.counters.slotsInUse, 0);
  });

  it('refuses more executes than its limit', async () => {
    const here = setting(1);
    for (let id = 1; id <= MAX_HELD_EXPERTS; id++) run(here, request(id, 0, 2, { last: false }));
    assert.throws(() => run(here, request(9999, 0, 2)), { code: 'QUEUE_FULL' });
    await here.slots.endLoad(0);
    assert.equal(here.replies.length, MAX_HELD_EXPERTS);
    run(here, request(10_000, 0, 2));
    await settle();
    assert.equal(here.replies.length, MAX_HELD_EXPERTS + 1);
  });

  it('survives an answer that ends its own stream', async () => {
    const here = setting(2);
    predict(here, 4, [1]);
    here.service.execute(request(1, 0, 2), () => here.service.loseMain());
    await here.slots.endLoad(1, new OdmoeError('STORAGE_FAILED', 'unplugged'));
    await settle();
    assert.equal(here.service.counters.slotsInUse, 0);
    assert.equal(here.slots.pending.size, 0);
  });

  it('drops the pending work of a lost main, and is fresh for the next main', async () => {
    const here = setting(1);
    run(here, request(1, 0, 2));
    here.service.loseMain();
    await settle();
    assert.equal(here.service.counters.slotsInUse, 0);
    assert.deepEqual(here.replies, []);
    run(here, request(1, 0, 2));
    await here.slots.endLoad(0);
    assert.equal(here.replies.length, 1);
  });

  it('reports once that no slot is in use, to the last one that asked', async () => {
    const here = setting(1);
    const errors: string[] = [];
    run(here, request(1, 0, 2));
    here.service.whenSlotsEmpty(() => errors.push('first'));
    here.service.whenSlotsEmpty(() => errors.push('second'));
    await here.slots.endLoad(0);
    assert.deepEqual([here.replies.length, errors], [1, ['second']]);
    run(here, request(2, 1, 3));
    await here.slots.endLoad(0);
    assert.deepEqual([here.replies.length, errors], [2, ['second']]);
  });

  it('disposes of the slots only when no work is running', async () => {
    const here = setting(2);
    const { calls } = here.slots;
    here.slots.cancelsEndLate = true;
    predict(here, 0, [1, 2]);
    const closed = here.service.close();
    await settle();
    assert.deepEqual(calls, ['load 0 1', 'load 1 2', 'cancel 0', 'cancel 1']);
    here.slots.endCancelled(0);
    await settle();
    assert.ok(!calls.includes('dispose'), 'one load is still under way');
    here.slots.endCancelled(1);
    await closed;
    assert.deepEqual(calls.slice(4), ['dispose']);
  });
});
