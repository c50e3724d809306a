import { readFileSync } from 'node:fs';
import { freemem } from 'node:os';

/** Where Linux tells of control groups (version 2), and which one this process is in. */
const GROUPS = '/sys/fs/cgroup';
const OWN_GROUP = '/proc/self/cgroup';
/** More levels than any system nests. */
const MOST_LEVELS = 32;

/** What a control group may take and takes, as its files say. */
export interface GroupMemory {
  /** memory.max: a number of bytes, or "max". */
  max: string;
  /** memory.current */
  current: string;
  /** memory.stat */
  stat: string;
}

/**
 * Memory in bytes that this process could take now: what the system has available (pages that only cache files count as available), and no
 * more than its control groups leave it.
 */
export function availableMemoryBytes(
  read: (path: string) => string | null = readOrNull,
  systemBytes: () => number = freemem,
): number {
  const left = ownGroups(read(OWN_GROUP) ?? '').flatMap((group) => {
    const max = read(`${group}/memory.max`);
    const current = read(`${group}/memory.current`);
    const stat = read(`${group}/memory.stat`);
    return max === null || current === null || stat === null ? [] : [leftInGroup({ max, current, stat })];
  });
  return Math.min(systemBytes(), ...left);
}

/** The group and those around it, by their folders. Pure. `text`: of /proc/self/cgroup. */
export function ownGroups(text: string): string[] {
  const own = /^0::(\/.*)$/m.exec(text)?.[1];
  if (own === undefined) return [];
  const parts = own.split('/').filter((part) => part !== '' && part !== '..');
  return Array.from({ length: Math.min(parts.length, MOST_LEVELS) + 1 }, (_, up) =>
    [GROUPS, ...parts.slice(0, parts.length - up)].join('/'),
  );
}

/** Bytes; Infinity where nothing bounds the group. Pure. Its file pages make room for others. */
export function leftInGroup({ max, current, stat }: GroupMemory): number {
  const limit = Number(max.trim());
  if (!Number.isFinite(limit)) return Infinity;
  const files = ['active_file', 'inactive_file'].reduce(
    (sum, name) => sum + Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(stat)?.[1] ?? 0),
    0,
  );
  return Math.max(0, limit - Number(current.trim()) + files);
}

/** Not every system has control groups. */
function readOrNull(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}
