/** What main's flags and configuration may ask of its own worker (main.experts: local or both). */
import type { ClusterConfig } from './cluster-config.js';
import type { NodeSettings } from './node-settings.js';

/** Flags of what loads and keeps experts: a worker, or main's own. */
export interface LoadingFlags {
  slots?: number | 'auto';
  cacheBytes?: number;
  hostMemory?: number | 'auto';
  cachePolicy?: NodeSettings['worker']['cachePolicy'];
  decompressionThreads?: number;
  directIo?: boolean;
}

type MainFlags = LoadingFlags & { experts?: NodeSettings['main']['experts'] };

/** As users write them. */
const OWN_WORKER_FLAGS = {
  slots: '--slots',
  cacheBytes: '--cache',
  cachePolicy: '--cache-policy',
  hostMemory: '--host-memory',
  decompressionThreads: '--decompression-threads',
  directIo: '--direct-io',
} as const satisfies Record<keyof LoadingFlags, string>;

/** Why main's own worker cannot be as it is asked for, and what to do; null: it can. `hasBudget`: main has a memory budget. Pure. */
export function ownWorkerContradiction(config: ClusterConfig, flags: MainFlags, hasBudget: boolean): string | null {
  if ((flags.experts ?? config.main.experts) === 'workers') {
    const names = Object.keys(OWN_WORKER_FLAGS) as (keyof typeof OWN_WORKER_FLAGS)[];
    const given = names.find((name) => flags[name] !== undefined);
    if (given === undefined) return null;
    return `${OWN_WORKER_FLAGS[given]} is for main's own worker, and it has none: add --experts local or both, or say it to the workers`;
  }
  const policy = flags.cachePolicy ?? config.worker.cache_policy;
  return hasBudget && policy === 'planned' ? PLANNED_STAYS : null;
}

const PLANNED_STAYS =
  "cache policy planned divides memory that stays, and the experts of main's own worker give theirs to answers: leave the policy out " +
  "(lru there, planned on workers of the LAN) or set it to residency, or leave out main's memory budget";
