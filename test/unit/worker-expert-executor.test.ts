import assert from 'node:assert/strict';
import fc from 'fast-check';
import { FROM_STORAGE } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Execute } from '../../shared/wire/messages.js';
import { ExpertExecutor, type ExecutorLimits } from '../../worker-node/executor/expert-executor.js';
import { plainExecute } from './wire-messages.js';
import { silentLog, TestSlots } from './worker-test-slots.js';

const ROW_BYTES = 4;
const PLENTY: ExecutorLimits = { experts: 1000, bytes: 1_000_000 };
const FAILURE = new OdmoeError('INTERNAL', 'a test');

function requestOf(experts: number, rows: number): Execute {
  return {
    ...plainExecute({ layer: 0, expert: 0, rows, hidden: Buffer.alloc(rows * ROW_BYTES) }),
    experts: Array.from({ length: experts }, (_, expert) => ({ expert, rows: [], last: true })),
  };
}

function executorWith(limits: Partial<ExecutorLimits>, slots = new TestSlots(1)): ExpertExecutor {
  return new ExpertExecutor(slots, 4, () => 0, silentLog, undefined, { ...PLENTY, ...limits });
}

const hold = (executor: ExpertExecutor, firstTicket: number, experts: number, rows: number): void =>
  executor.hold(firstTicket, requestOf(experts, rows), () => undefined);

describe('worker: the limits of an executor', () => {
  it('bound the bytes of hidden states, and free them after the work', () => {
    const executor = executorWith({ bytes: 4 * ROW_BYTES });
    for (let round = 0; round < 50; round += 1) {
      hold(executor, 4 * round, 1, 3);
      assert.throws(() => hold(executor, 4 * round + 1, 1, 2), { code: 'QUEUE_FULL' });
      hold(executor, 4 * round + 2, 1, 1);
      assert.deepEqual(executor.held, { experts: 2, bytes: 4 * ROW_BYTES });
      executor.failAll(FAILURE);
      assert.deepEqual(executor.held, { experts: 0, bytes: 0 });
    }
  });

  it('bound the number of experts', () => {
    const executor = executorWith({ experts: 3 });
    assert.throws(() => hold(executor, 0, 4, 1), { code: 'QUEUE_FULL' });
    hold(executor, 0, 3, 1);
    assert.throws(() => hold(executor, 3, 1, 1), { code: 'QUEUE_FULL' });
    executor.fail(1, FAILURE);
    hold(executor, 3, 1, 1);
  });

  it('count no finished work', async () => {
    const slots = new TestSlots(1);
    const executor = executorWith({}, slots);
    void slots.load(0, 0, FROM_STORAGE);
    await slots.endLoad(0);
    for (const fault of [null, new Error('it cannot be run')]) {
      slots.executeFault = fault;
      hold(executor, 0, 1, 2);
      await executor.run(0, 0, true, { endedMs: 0, tookMs: 0 });
      assert.deepEqual(executor.held, { experts: 0, bytes: 0 });
    }
  });

  it('count the open experts and the bytes of their requests, whichever way these end', () => {
    const step = fc.record({
      kind: fc.constantFrom('hold', 'hold', 'fail', 'forget', 'abandon'),
      experts: fc.integer({ min: 1, max: 3 }),
      rows: fc.integer({ min: 1, max: 3 }),
      which: fc.nat(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const executor = executorWith({});
        let open: { first: number; request: Execute; tickets: number[] }[] = [];
        let next = 0;
        for (const { kind, experts, rows, which } of steps) {
          const chosen = open[which % Math.max(1, open.length)];
          if (kind === 'hold') {
            const request = requestOf(experts, rows);
            executor.hold(next, request, () => undefined);
            open.push({ first: next, request, tickets: request.experts.map((_, index) => next + index) });
            next += experts;
          } else if (kind === 'abandon') {
            executor.abandonAll();
            open = [];
          } else if (chosen !== undefined && kind === 'fail') {
            const ticket = chosen.tickets.shift();
            if (ticket !== undefined) executor.fail(ticket, FAILURE);
            open = open.filter(({ tickets }) => tickets.length > 0);
          } else if (chosen !== undefined) {
            executor.forget(chosen.first, chosen.request);
            open = open.filter((other) => other !== chosen);
          }
          assert.deepEqual(executor.held, {
            experts: open.reduce((sum, { tickets }) => sum + tickets.length, 0),
            bytes: open.reduce((sum, { request }) => sum + request.hidden.byteLength, 0),
          });
        }
      }),
    );
  });
});
