import { readFileSync } from 'node:fs';
import { freemem } from 'node:os';

/** Where Linux tells of control groups, and which ones this process is in. */
const GROUPS = '/sys/fs/cgroup';
const OWN_GROUP = '/proc/self/cgroup';
/** More levels than any system nests. */
const MOST_LEVELS = 32;

/** What a control group may take and takes, as its files say. */
export interface GroupMemory {
  /** A number of bytes, or "max". */
  max: string;
  current: string;
  stat: string;
}

/** Files of a memory group, by version of control groups, and what of `stat` are file pages of the group and those within. */
const FILES = {
  v2: { max: 'memory.max', current: 'memory.current', filePages: ['active_file', 'inactive_file'] },
  v1: {
    max: 'memory.limit_in_bytes',
    current: 'memory.usage_in_bytes',
    filePages: ['total_active_file', 'total_inactive_file'],
  },
} as const;

export type GroupVersion = keyof typeof FILES;

/**
 * Memory in bytes that this process could take now: what the system has available (pages that only cache files count as available), and no
 * more than its control groups leave it.
 */
export function availableMemoryBytes(
  read: (path: string) => string | null = readOrNull,
  systemBytes: () => number = freemem,
): number {
  const left = ownGroups(read(OWN_GROUP) ?? '').flatMap(({ folder, version }) => {
    const max = read(`${folder}/${FILES[version].max}`);
    const current = read(`${folder}/${FILES[version].current}`);
    const stat = read(`${folder}/memory.stat`);
    return max === null || current === null || stat === null ? [] : [leftInGroup({ max, current, stat }, version)];
  });
  return Math.min(systemBytes(), ...left);
}

/** The group and those around it, by their folders, of either version or both. Pure. `text`: of /proc/self/cgroup. */
export function ownGroups(text: string): { folder: string; version: GroupVersion }[] {
  const folders = (root: string, group: string | undefined): string[] => {
    if (group === undefined) return [];
    const parts = group.split('/').filter((part) => part !== '' && part !== '..');
    return Array.from({ length: Math.min(parts.length, MOST_LEVELS) + 1 }, (_, up) =>
      [root, ...parts.slice(0, parts.length - up)].join('/'),
    );
  };
  const unified = folders(GROUPS, /^0::(\/.*)$/m.exec(text)?.[1]);
  const ofMemory = folders(`${GROUPS}/memory`, /^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(\/.*)$/m.exec(text)?.[1]);
  return [
    ...unified.map((folder) => ({ folder, version: 'v2' as const })),
    ...ofMemory.map((folder) => ({ folder, version: 'v1' as const })),
  ];
}

/** Bytes; Infinity where nothing bounds the group. Pure. Its file pages make room for others. */
export function leftInGroup({ max, current, stat }: GroupMemory, version: GroupVersion): number {
  const limit = Number(max.trim());
  if (!Number.isFinite(limit)) return Infinity;
  const files = FILES[version].filePages.reduce(
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
