import assert from 'node:assert/strict';
import type { Execute, ExecuteResult } from '../../shared/wire/messages.js';
import { withoutHead } from '../../simulator/faults/accounts/head-messages.js';
import type { Recorded } from '../../simulator/faults/accounts/recorder.js';
import { WorkerAccount } from '../../simulator/faults/accounts/worker-account.js';
import { IDLE_SEQUENCE_EXECUTES } from '../../worker-node/loader/main-progress.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';

const LAYERS = 4;
const HEAD = LAYERS;
const MAIN = 'main';

type Way = 'sent' | 'arrived';

function execute(way: Way, requestId: number, layer: number, changes: Partial<Execute> = {}): Recorded {
  const asked = { requestId, layer, experts: [], ...changes } as Partial<Execute> as Execute;
  return { kind: 'message', way, from: MAIN, to: 'w', message: { kind: 'execute', execute: asked } };
}

function result(way: Way, requestId: number, { last = true, from = 'w' } = {}): Recorded {
  const told = { requestId, last, experts: [] } as Partial<ExecuteResult> as ExecuteResult;
  return { kind: 'message', way, from, to: MAIN, message: { kind: 'result', result: told } };
}

describe('simulator: the record without the head', () => {
  it('has no execute of the head and none of its results, as sent and as arrived', () => {
    const head = [execute('sent', 1, HEAD), execute('arrived', 1, HEAD)];
    const results = [result('sent', 1, { last: false }), result('arrived', 1, { last: false })];
    const model = [execute('sent', 2, 0), execute('arrived', 2, 0), result('sent', 2), result('arrived', 2)];
    const ends = [result('sent', 1), result('arrived', 1)];
    const other = result('arrived', 1, { from: 'v' });
    assert.deepEqual(withoutHead([...head, ...results, ...model, other, ...ends], MAIN, LAYERS), [...model, other]);
  });

  it('has the results of requests of the model that get a number of the head again on a new link', () => {
    const model = (requestId: number): Recorded[] => [
      execute('sent', requestId, 0),
      execute('arrived', requestId, 0),
      result('sent', requestId),
      result('arrived', requestId),
    ];
    // The last result of the head's first request has arrived; its second request is never answered.
    const head = [execute('sent', 1, HEAD), result('sent', 1), result('arrived', 1), execute('sent', 2, HEAD)];
    assert.deepEqual(withoutHead([...head, ...model(1), ...model(2)], MAIN, LAYERS), [...model(1), ...model(2)]);
    assert.deepEqual(withoutHead([...head, result('arrived', 1)], MAIN, LAYERS), [result('arrived', 1)]);
  });
});

describe("simulator: a worker's account", () => {
  it('counts executes of the head neither as reloads nor as time in which answers are idle', () => {
    const account = new WorkerAccount('w', LAYERS);
    const ask = (sequence: number, position: number, layer: number): void =>
      account.take(
        execute('arrived', 1, layer, {
          ...passOfSequence(sequence, position, 1),
          experts: [{ expert: 3, rows: [], last: true }],
        }),
      );
    const announce = { epoch: 1, ...passOfSequence(7, 5, 1), layer: 2, experts: [3] };
    account.take({ kind: 'message', way: 'arrived', from: MAIN, to: 'w', message: { kind: 'announce', announce } });
    for (let position = 0; position <= IDLE_SEQUENCE_EXECUTES; position += 1) ask(1, position, HEAD);
    ask(7, 5, 2);
    assert.equal(account.reloads, 0);
    for (let position = 0; position <= IDLE_SEQUENCE_EXECUTES; position += 1) ask(2, position, 0);
    assert.equal(account.reloads, IDLE_SEQUENCE_EXECUTES + 1);
  });
});
