import type { LoadTimes } from '../../shared/decisions/caching/load-times.js';
import type { LoadTask, Recovery } from '../../shared/decisions/caching/load-task.js';

interface Read {
  task: number;
  kind: 'exponents' | 'signMantissa';
}

/**
 * The least possible makespan. It tries every order of reads, every order in which threads get decompressions, and every order of
 * executions, so it is for tasks with few operations. A schedule in which no operation is later than necessary is a list schedule, so
 * an optimal schedule is among them.
 */
export function optimalMakespan(tasks: readonly LoadTask[], loadTimes: LoadTimes, recovery: Recovery): number {
  const reads = tasks.flatMap(({ state }, task): Read[] => {
    const exponents: Read[] =
      state === 'missing' || state === 'signMantissa'
        ? Array.from({ length: loadTimes.shards }, () => ({ task, kind: 'exponents' as const }))
        : [];
    return state === 'missing' || state === 'exponent' ? [...exponents, { task, kind: 'signMantissa' }] : exponents;
  });
  let best = Infinity;
  forEachOrder(
    reads,
    (read) => `${read.task} ${read.kind}`,
    (order) => {
      best = Math.min(best, bestAfterReads(tasks, loadTimes, recovery, order));
    },
  );
  return best;
}

function bestAfterReads(
  tasks: readonly LoadTask[],
  loadTimes: LoadTimes,
  recovery: Recovery,
  order: readonly Read[],
): number {
  const { shards } = loadTimes;
  const released = tasks.map(() => [] as number[]);
  const signMantissaMs = tasks.map(() => 0);
  const signMantissaStartMs = tasks.map(() => 0);
  let nowMs = 0;
  for (const { task, kind } of order) {
    const startMs = nowMs;
    nowMs += kind === 'exponents' ? loadTimes.exponentReadMs : loadTimes.signMantissaReadMs;
    if (kind === 'exponents') released[task]?.push(nowMs);
    else {
      signMantissaMs[task] = nowMs;
      signMantissaStartMs[task] = startMs;
    }
  }
  const decompressions = tasks.flatMap((task, index) =>
    Array.from({ length: shards }, (_, shard) => {
      const readsSignMantissa = task.state === 'missing' || task.state === 'exponent';
      const pieceMs = (loadTimes.signMantissaReadMs * (shard + 1)) / shards;
      const withMs = recovery === 'with' && readsSignMantissa ? (signMantissaStartMs[index] ?? 0) + pieceMs : 0;
      return { task: index, releasedMs: Math.max(released[index]?.[shard] ?? 0, withMs) };
    }),
  );
  let best = Infinity;
  forEachOrder(
    decompressions,
    ({ task }) => String(task),
    (operations) => {
      const threadEndMs = new Array<number>(loadTimes.threads).fill(0);
      const recoveredMs = [...signMantissaMs];
      for (const { task, releasedMs } of operations) {
        const thread = threadEndMs.indexOf(Math.min(...threadEndMs));
        const endMs = Math.max(threadEndMs[thread] ?? 0, releasedMs) + loadTimes.decompressMs;
        threadEndMs[thread] = endMs;
        recoveredMs[task] = Math.max(recoveredMs[task] ?? 0, endMs);
      }
      best = Math.min(best, executedMs(tasks, recoveredMs));
    },
  );
  return best;
}

/** One machine, known release times, least makespan: earliest release first is optimal. */
function executedMs(tasks: readonly LoadTask[], recoveredMs: readonly number[]): number {
  const ready = new Map<number, { readyMs: number; executeMs: number }>();
  tasks.forEach(({ expert, executeMs }, index) => {
    const readyMs = Math.max(ready.get(expert)?.readyMs ?? 0, recoveredMs[index] ?? 0);
    ready.set(expert, { readyMs, executeMs });
  });
  return [...ready.values()]
    .sort((left, right) => left.readyMs - right.readyMs)
    .reduce((nowMs, { readyMs, executeMs }) => Math.max(nowMs, readyMs) + executeMs, 0);
}

/** Every order of the items; those with the same key keep their order among themselves. */
function forEachOrder<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  visit: (order: readonly Item[]) => void,
): void {
  const queues = new Map<string, Item[]>();
  for (const item of items) queues.set(keyOf(item), [...(queues.get(keyOf(item)) ?? []), item]);
  const order: Item[] = [];
  const places = [...queues.values()].map((queue) => ({ queue, next: 0 }));
  const extend = (): void => {
    if (order.length === items.length) {
      visit(order);
      return;
    }
    for (const place of places) {
      const item = place.queue[place.next];
      if (item === undefined) continue;
      place.next += 1;
      order.push(item);
      extend();
      order.pop();
      place.next -= 1;
    }
  };
  extend();
}
