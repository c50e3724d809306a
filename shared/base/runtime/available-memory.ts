import { readFileSync } from 'node:fs';
import { freemem } from 'node:os';

/** Directory in which Linux shows the control groups, and the file that names the groups of this process. */
const GROUPS = '/sys/fs/cgroup';
const OWN_GROUP = '/proc/self/cgroup';
/** More levels than control groups are ever nested. */
const MOST_LEVELS = 32;

/** The limit and the usage of a control group, as its files give them. */
export interface GroupMemory {
  /** A number of bytes, or "max". */
  max: string;
  current: string;
  stat: string;
}

/**
 * Files of a memory group, by version of control groups. `filePages`: fields of `stat` that count the file pages of the group and of those
 * within it.
 */
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
 * Memory in bytes that this process could take now. This is the memory that the system has available (pages that only cache files count as
 * available), but at most the amount that its control groups leave it.
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

/**
 * The control group of this process and those that contain it, by their folders, of either version or both. Pure. `text`: content of
 * /proc/self/cgroup.
 */
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

/**
 * Bytes that the group may still take; Infinity if the group has no limit. Pure. File pages of the group count as free, because the system can
 * evict them.
 */
export function leftInGroup({ max, current, stat }: GroupMemory, version: GroupVersion): number {
  const limit = Number(max.trim());
  if (!Number.isFinite(limit)) return Infinity;
  const files = FILES[version].filePages.reduce(
    (sum, name) => sum + Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(stat)?.[1] ?? 0),
    0,
  );
  return Math.max(0, limit - Number(current.trim()) + files);
}

/** Some systems have no control groups, so these files may be missing. */
function readOrNull(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}
