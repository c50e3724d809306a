import { readdirSync } from 'node:fs';
import { COUNTS_LIMIT } from '../../shared/wire/limits.js';
import type { Count, CountsReply } from '../../shared/wire/messages.js';
import { collectionSizes } from '../../shared/base/runtime/collection-sizes.js';
import { living } from '../../shared/base/runtime/living.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** Shortest time between two counts, because counting visits all objects of the daemon; calls in between get the last result. */
const COUNTED_MS = 1000;
/** Linux lists the open files of a process here; other systems are not supported. */
const OPEN_FILES = '/proc/self/fd';

/**
 * Counts everything that a daemon's process has open, for `odmoe debug counts`: living things that have not ended (living.ts), entries of its
 * collections (collection-sizes.ts), resources of Node and the system, and handles of devices.
 */
export class ProcessCounts {
  private last: { reply: CountsReply; atMs: number } | null = null;

  /** `components`: objects that lead to all collections of the daemon. `handles`: number of device handles, by kind. */
  constructor(
    private readonly runtime: Pick<Runtime, 'nowMs'>,
    private readonly components: () => readonly object[],
    private readonly handles: () => Readonly<Record<string, number>>,
  ) {}

  reply(): CountsReply {
    const atMs = this.runtime.nowMs();
    if (this.last === null || atMs - this.last.atMs >= COUNTED_MS) this.last = { reply: this.count(), atMs };
    return this.last.reply;
  }

  private count(): CountsReply {
    const counts = [
      ...named('living', Object.entries(living().counts())),
      ...named('node', tally(process.getActiveResourcesInfo())),
      ...named('handles', Object.entries(this.handles())),
      ...named('files', openFiles()),
      ...named('entries', collectionSizes(this.components())),
    ];
    return { counts: counts.slice(0, COUNTS_LIMIT) };
  }
}

function named(kind: string, counts: Iterable<readonly [string, number]>): Count[] {
  return [...counts].map(([name, count]) => ({ name: `${kind} ${name}`, count }));
}

function tally(names: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

function openFiles(): [string, number][] {
  try {
    return [['open', readdirSync(OPEN_FILES).length]];
  } catch {
    // Only Linux has this directory.
    return [];
  }
}
