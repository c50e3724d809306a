import assert from 'node:assert/strict';
import fc from 'fast-check';
import { plainExecute } from './wire-messages.js';
import { bundleWork, miniBatchRowsFor, splitLoadingRows } from '../../main-node/pass/expert-work.js';
import { activatedExperts } from '../../shared/decisions/placement/activated-experts.js';
import { planLayer, type LayerPlan } from '../../main-node/pass/plan-layer.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { MESSAGE_SIZE_LIMIT_BYTES } from '../../shared/wire/limits.js';
import { METHODS } from '../../shared/transport/methods.js';

interface Case {
  rows: number;
  k: number;
  experts: number;
  workers: number;
  miniBatchRows: number;
  choice: Int32Array;
}

const cases = fc
  .record({
    rows: fc.integer({ min: 1, max: 40 }),
    experts: fc.integer({ min: 1, max: 9 }),
    workers: fc.integer({ min: 1, max: 20 }),
    miniBatchRows: fc.integer({ min: 1, max: 8 }),
  })
  .chain((shape) => {
    const k = Math.min(2, shape.experts);
    const row = fc.shuffledSubarray([...Array(shape.experts).keys()], { minLength: k, maxLength: k });
    return fc
      .array(row, { minLength: shape.rows, maxLength: shape.rows })
      .map((choice): Case => ({ ...shape, k, choice: Int32Array.from(choice.flat()) }));
  });

/** Expert e belongs to workers e, e + experts, ... of `workers`. */
function workersFor({ experts, workers }: Case, expert: number): string[] {
  const ids = [...Array(workers).keys()].filter((worker) => worker % experts === expert);
  return (ids.length === 0 ? [expert % workers] : ids).map((worker) => `worker-${worker}`);
}

/** The plan of a layer whose experts have all been announced to their workers. */
function plan(input: Case): LayerPlan {
  const ids = [...Array(input.workers).keys()].map((worker) => ({ id: `worker-${worker}`, address: '', slots: 1 }));
  const shape = { layers: 1, experts: input.experts, expertsPerToken: input.k };
  const placement = planPlacement({ epoch: 1, workers: ids, ...shape, groupSize: 'auto' });
  const experts = [...Array(input.experts).keys()];
  const holders = new Map(experts.map((expert) => [expert, workersFor(input, expert)]));
  return planLayer(
    placement,
    0,
    { holders, superseded: [], isWholeLayer: true },
    activatedExperts(input.choice, input.k),
    { spread: 'group', isAlone: false, batchRows: input.miniBatchRows },
  );
}

describe('main: mini-batches', () => {
  it('send every row to each of its experts once, at its rank, in mini-batches of bounded size', () => {
    fc.assert(
      fc.property(cases, (input) => {
        const seen = new Map<string, number>();
        for (const batch of plan(input).work) {
          assert.ok(batch.rows.length >= 1 && batch.rows.length <= input.miniBatchRows);
          assert.ok(workersFor(input, batch.expert).includes(batch.workerId));
          for (const { row, rank } of batch.rows) seen.set(`${row} ${rank}`, batch.expert);
        }
        assert.equal(seen.size, input.choice.length);
        input.choice.forEach((expert, index) => {
          assert.equal(seen.get(`${Math.floor(index / input.k)} ${index % input.k}`), expert);
        });
      }),
    );
  });

  it('are no larger than one message, however many rows are set', () => {
    assert.equal(miniBatchRowsFor(32, 4096), 32);
    const hiddenSize = 4096;
    const rows = miniBatchRowsFor(16_384, hiddenSize);
    const hidden = new Uint8Array(rows * hiddenSize * 4);
    const place = { sequence: 2 ** 50, position: 2 ** 31, layer: 100, expert: 100, last: true };
    const execute = plainExecute({ requestId: 2 ** 50, epoch: 2 ** 50, ...place, rows, hiddenSize, hidden });
    const bytes = METHODS.worker.serve.request.encode({ kind: 'execute', execute });
    assert.ok(bytes.length <= MESSAGE_SIZE_LIMIT_BYTES);
    assert.ok(bytes.length + 16 * hiddenSize * 4 > MESSAGE_SIZE_LIMIT_BYTES);
    // Each row that has no neighbour needs a run of its own.
    const runs = Array.from({ length: rows }, (_, row) => ({
      sequence: 2 ** 50,
      position: 2 ** 30 + 2 * row,
      rows: 1,
    }));
    const apart = METHODS.worker.serve.request.encode({ kind: 'execute', execute: { ...execute, rows: runs } });
    assert.ok(apart.length <= MESSAGE_SIZE_LIMIT_BYTES);
  });

  it('can begin with one row for each worker, which loses no row, doubles none and ends no expert too early', () => {
    fc.assert(
      fc.property(cases, (input) => {
        const { work: batches } = plan(input);
        const { loading, rest } = splitLoadingRows(batches);
        assert.equal(new Set(loading.map(({ workerId }) => workerId)).size, loading.length);
        assert.ok(loading.every(({ rows }) => rows.length === 1));
        const keys = (list: typeof batches) =>
          list.flatMap(({ workerId, expert, rows }) =>
            rows.map(({ row, rank }) => `${workerId} ${expert} ${row} ${rank}`),
          );
        assert.deepEqual(keys([...loading, ...rest]).sort(), keys(batches).sort());
        for (const { workerId, expert, last } of loading) {
          const later = rest.some((batch) => batch.workerId === workerId && batch.expert === expert);
          assert.equal(last, !later);
        }
      }),
    );
  });

  it('go to each worker in order, several experts in one message, with the rows of one mini-batch at most', () => {
    fc.assert(
      fc.property(cases, (input) => {
        const { work: batches } = plan(input);
        const bundles = bundleWork(batches, input.miniBatchRows);
        for (const [workerId, messages] of bundles) {
          const own = batches.filter((batch) => batch.workerId === workerId);
          assert.deepEqual(messages.flat(), own);
          const rows = messages.map((message) => message.reduce((sum, work) => sum + work.rows.length, 0));
          assert.ok(rows.every((count) => count <= input.miniBatchRows));
          for (const message of messages)
            assert.equal(new Set(message.map(({ expert }) => expert)).size, message.length);
          const needless = rows.some((count, index) => {
            const next = messages[index + 1]?.[0];
            const hasIt = messages[index]?.some(({ expert }) => expert === next?.expert) === true;
            return next !== undefined && !hasIt && count + next.rows.length <= input.miniBatchRows;
          });
          assert.equal(needless, false, 'a message less would have held it');
        }
        assert.deepEqual(new Set(bundles.keys()), new Set(batches.map(({ workerId }) => workerId)));
      }),
    );
  });

  it('mark the last batch of each worker and expert, and name the workers without work for an expert', () => {
    fc.assert(
      fc.property(cases, (input) => {
        const { work: batches, releases } = plan(input);
        for (let expert = 0; expert < input.experts; expert++) {
          for (const workerId of workersFor(input, expert)) {
            const own = batches.filter((batch) => batch.workerId === workerId && batch.expert === expert);
            assert.deepEqual(
              own.map((batch) => batch.last),
              own.map((_, index) => index === own.length - 1),
            );
            const named = releases.get(workerId)?.includes(expert) === true;
            assert.equal(named, own.length === 0);
          }
        }
      }),
    );
  });
});
