import assert from 'node:assert/strict';
import fc from 'fast-check';
import { blocksMakespanMs, simulateBlocks } from '../../shared/decisions/caching/simulate-blocks.js';
import { fifoBlocks, lowerBound } from '../../bench/zipmoe/schedule-bounds.js';
import { scheduleBlocks, taskPlaces } from '../../shared/decisions/caching/schedule-blocks.js';
import type { ScheduleBlock, LoadTask, Recovery } from '../../shared/decisions/caching/load-task.js';
import {
  PARTLY_LOADED_STATES,
  type LoadTimes,
  type PartlyLoadedState,
} from '../../shared/decisions/caching/load-times.js';
import type { ScheduledOperation } from '../../shared/decisions/caching/block-timeline.js';
import { optimalMakespan } from './planner-optimal-schedule.js';

const PROFILE: LoadTimes = {
  signMantissaReadMs: 10,
  exponentReadMs: 2,
  decompressMs: 3,
  compressionRatio: 0.4,
  threads: 2,
  shards: 2,
  tensors: 1,
};
const RECOVERIES: readonly Recovery[] = ['after', 'with'];
const NEARLY = 1e-9;

function task(expert: number, state: PartlyLoadedState, executeMs = 1, tensor = 0): LoadTask {
  return { expert, tensor, state, executeMs };
}

const names = (blocks: readonly ScheduleBlock[]): string[] =>
  blocks.map((block) => block.map(({ expert }) => String(expert)).join(' '));

const times = fc.double({ min: 0.1, max: 8, noNaN: true });

function allLoadTimes(limits: { threads: number; shards: number }): fc.Arbitrary<LoadTimes> {
  return fc
    .record({
      signMantissaReadMs: times,
      ratio: fc.double({ min: 0.1, max: 1, noNaN: true }),
      decompressMs: times,
      threads: fc.integer({ min: 1, max: limits.threads }),
      shards: fc.integer({ min: 1, max: limits.shards }),
    })
    .map(({ signMantissaReadMs, ratio, decompressMs, threads, shards }) => ({
      signMantissaReadMs,
      decompressMs,
      threads,
      shards,
      tensors: 1,
      compressionRatio: ratio,
      exponentReadMs: (ratio * signMantissaReadMs) / shards,
    }));
}

/** Experts of one state and execution time each, with as many tensors as asked for. */
function taskSets(limits: { experts: number; tensors: number }): fc.Arbitrary<LoadTask[]> {
  const expert = fc.record({ state: fc.constantFrom(...PARTLY_LOADED_STATES), executeMs: times });
  return fc
    .tuple(fc.array(expert, { minLength: 1, maxLength: limits.experts }), fc.integer({ min: 1, max: limits.tensors }))
    .map(([experts, tensors]) =>
      experts.flatMap(({ state, executeMs }, index) =>
        Array.from({ length: tensors }, (_, tensor) => task(index, state, executeMs, tensor)),
      ),
    );
}

describe('scheduleBlocks (Algorithm 1)', () => {
  it('overlaps a read of signs and mantissas with experts that need none, before it in the block', () => {
    const tasks = [task(0, 'missing'), task(1, 'compressed'), task(2, 'signMantissa')];
    assert.deepEqual(names(scheduleBlocks(tasks, PROFILE, 'after')), ['1 2 0']);
  });

  it('ends a block when decompression is the bottleneck', () => {
    const slow = { ...PROFILE, decompressMs: 40 };
    const tasks = [task(0, 'missing', 5), task(1, 'missing', 4), task(2, 'signMantissa', 3)];
    assert.deepEqual(names(scheduleBlocks(tasks, slow, 'after')), ['0', '1', '2']);
  });

  it('makes one block when reading is the bottleneck', () => {
    const fast = { ...PROFILE, decompressMs: 0.1 };
    const tasks = [task(0, 'missing', 5), task(1, 'missing', 4), task(2, 'signMantissa', 3)];
    assert.deepEqual(names(scheduleBlocks(tasks, fast, 'after')), ['2 0 1']);
  });

  it('gives a type-I task a block of its own where exponents alone let nothing begin', () => {
    const fast = { ...PROFILE, decompressMs: 0.1 };
    const tasks = [task(0, 'missing', 5), task(1, 'exponent', 4), task(2, 'signMantissa', 3)];
    assert.deepEqual(names(scheduleBlocks(tasks, fast, 'with')), ['2 0', '1']);
  });

  it('leaves no task out when nothing is to be read', () => {
    const tasks = [task(0, 'compressed', 1), task(1, 'compressed', 2)];
    assert.deepEqual(names(scheduleBlocks(tasks, PROFILE)), ['1 0']);
    assert.deepEqual(scheduleBlocks([], PROFILE), []);
  });

  it('gives the place of each tensor of an expert', () => {
    const tasks = [0, 1, 2].map((tensor) => task(7, 'missing', 1, tensor));
    const places = taskPlaces(scheduleBlocks(tasks, PROFILE, 'after'));
    assert.deepEqual(
      places.get(7)?.map(({ position }) => position),
      [0, 1, 2],
    );
  });

  it('has every task once; in a block, type II before type I, each by falling execution time', () => {
    fc.assert(
      fc.property(
        taskSets({ experts: 8, tensors: 3 }),
        allLoadTimes({ threads: 4, shards: 4 }),
        fc.constantFrom(...RECOVERIES),
        (tasks, loadTimes, recovery) => {
          const blocks = scheduleBlocks(tasks, loadTimes, recovery);
          assert.deepEqual(new Set(blocks.flat()), new Set(tasks));
          assert.equal(blocks.flat().length, tasks.length);
          for (const block of blocks) {
            assert.ok(block.length > 0);
            const isReader = block.map(({ state }) => state === 'missing' || state === 'exponent');
            assert.deepEqual(isReader, [...isReader].sort(), 'a type-I task before a type-II task');
          }
          for (const kind of [true, false]) {
            const executeMs = blocks
              .flat()
              .filter(({ state }) => (state === 'missing' || state === 'exponent') === kind)
              .map((each) => each.executeMs);
            assert.deepEqual(
              executeMs,
              [...executeMs].sort((left, right) => right - left),
            );
          }
        },
      ),
    );
  });

  it('stays within (3 - 1/L) of the optimum (Theorem 3.1)', function () {
    let worst = 0;
    fc.assert(
      fc.property(
        taskSets({ experts: 3, tensors: 2 }),
        allLoadTimes({ threads: 3, shards: 2 }),
        fc.constantFrom(...RECOVERIES),
        (tasks, loadTimes, recovery) => {
          const few = tasks.slice(0, loadTimes.shards === 1 ? 3 : 2);
          const makespanMs = blocksMakespanMs(scheduleBlocks(few, loadTimes, recovery), loadTimes, recovery);
          const optimumMs = optimalMakespan(few, loadTimes, recovery);
          assert.ok(lowerBound(few, loadTimes) <= optimumMs + NEARLY, 'the bound exceeds the optimum');
          assert.ok(makespanMs >= optimumMs - NEARLY, 'better than the optimum');
          assert.ok(makespanMs <= (3 - 1 / loadTimes.threads) * optimumMs + NEARLY);
          worst = Math.max(worst, makespanMs / optimumMs);
        },
      ),
      { numRuns: 300 },
    );
    assert.ok(worst > 1, 'all schedules were optimal: the instances are too easy to prove anything');
  });

  it('stays within (3 - 1/L) of the lower bound on larger instances', () => {
    fc.assert(
      fc.property(
        taskSets({ experts: 16, tensors: 3 }),
        allLoadTimes({ threads: 6, shards: 4 }),
        fc.constantFrom(...RECOVERIES),
        (tasks, loadTimes, recovery) => {
          const makespanMs = blocksMakespanMs(scheduleBlocks(tasks, loadTimes, recovery), loadTimes, recovery);
          assert.ok(makespanMs <= (3 - 1 / loadTimes.threads) * lowerBound(tasks, loadTimes) + NEARLY);
        },
      ),
      // More than the theorem promises, which is about the optimum: the same instances each time.
      { numRuns: 1000, seed: 1 },
    );
  });
});

describe('simulateBlocks', () => {
  it('reads in order of blocks, decompresses after the read, executes after recovery', () => {
    const blocks = [[task(0, 'missing', 7)]];
    const { makespanMs, operations } = simulateBlocks(blocks, PROFILE, 'after');
    // E-chunks until 2 and 4, signs and mantissas until 14, then 7 of execution.
    assert.equal(makespanMs, 21);
    assert.deepEqual(
      operations.map(({ kind, startMs, endMs }) => `${kind} ${startMs} ${endMs}`),
      [
        'readExponents 0 2',
        'readExponents 2 4',
        'readSignMantissa 4 14',
        'decompress 2 5',
        'decompress 4 7',
        'execute 14 21',
      ],
    );
  });

  it('makes a shard wait for its signs and mantissas, with recovery in one operation', () => {
    const { makespanMs, operations } = simulateBlocks([[task(0, 'missing', 7)]], PROFILE, 'with');
    const decompressed = operations.filter(({ kind }) => kind === 'decompress');
    assert.deepEqual(
      decompressed.map(({ startMs, endMs }) => [startMs, endMs]),
      [
        [9, 12],
        [14, 17],
      ],
    );
    assert.equal(makespanMs, 24);
  });

  it('reads nothing that is in memory', () => {
    assert.equal(blocksMakespanMs([[task(0, 'compressed', 1)]], PROFILE, 'after'), 4);
    assert.equal(blocksMakespanMs([[task(0, 'signMantissa', 1)]], PROFILE, 'after'), 8);
    assert.equal(blocksMakespanMs([[task(0, 'exponent', 1)]], PROFILE, 'after'), 11);
  });

  it('conserves work: no thread is idle while an operation waits, nothing runs before its input is there', () => {
    fc.assert(
      fc.property(
        taskSets({ experts: 6, tensors: 3 }),
        allLoadTimes({ threads: 3, shards: 3 }),
        fc.constantFrom(...RECOVERIES),
        fc.boolean(),
        (tasks, loadTimes, recovery, fifo) => {
          const blocks = fifo ? fifoBlocks(tasks) : scheduleBlocks(tasks, loadTimes, recovery);
          const { makespanMs, operations } = simulateBlocks(blocks, loadTimes, recovery);
          assert.ok(makespanMs >= lowerBound(tasks, loadTimes) - NEARLY);
          checkOperations(operations, tasks, loadTimes, recovery);
          assert.equal(Math.max(...operations.map(({ endMs }) => endMs)), makespanMs);
        },
      ),
    );
  });
});

function checkOperations(
  operations: readonly ScheduledOperation[],
  tasks: readonly LoadTask[],
  loadTimes: LoadTimes,
  recovery: Recovery,
): void {
  const of = (kind: ScheduledOperation['kind'], owner: LoadTask): ScheduledOperation[] =>
    operations.filter(
      (each) =>
        each.kind === kind && each.expert === owner.expert && (kind === 'execute' || each.tensor === owner.tensor),
    );
  const reads = operations.filter(({ kind }) => kind.startsWith('read'));
  for (const [index, read] of reads.entries()) assert.equal(read.startMs, reads[index - 1]?.endMs ?? 0);
  const decompressions = operations.filter(({ kind }) => kind === 'decompress');
  const releasedMs = new Map<ScheduledOperation, number>();
  for (const each of tasks) {
    const exponents = of('readExponents', each);
    const [signMantissa] = of('readSignMantissa', each);
    const own = of('decompress', each);
    assert.equal(own.length, loadTimes.shards);
    for (const operation of own) {
      const exponentsMs = exponents.find(({ shard }) => shard === operation.shard)?.endMs ?? 0;
      const pieceMs = (loadTimes.signMantissaReadMs * (operation.shard + 1)) / loadTimes.shards;
      const withMs = recovery === 'with' && signMantissa !== undefined ? signMantissa.startMs + pieceMs : 0;
      releasedMs.set(operation, Math.max(exponentsMs, withMs));
      assert.ok(operation.startMs >= Math.max(exponentsMs, withMs) - NEARLY);
    }
    const [execution] = of('execute', each);
    assert.ok(execution !== undefined);
    for (const { endMs } of [...own, ...(signMantissa === undefined ? [] : [signMantissa])]) {
      assert.ok(execution.startMs >= endMs - NEARLY);
    }
  }
  for (const operation of decompressions) {
    const waitedMs = operation.startMs - (releasedMs.get(operation) ?? 0);
    if (waitedMs <= NEARLY) continue;
    const justBefore = operation.startMs - Math.min(waitedMs, loadTimes.decompressMs) / 2;
    const busy = decompressions.filter(({ startMs, endMs }) => startMs <= justBefore && justBefore < endMs);
    assert.equal(busy.length, loadTimes.threads, 'a thread was idle while an operation waited');
  }
}
