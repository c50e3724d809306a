/** The one table that turns refusals of the system and of Node into words. */
import type { ErrorCode } from './registry.js';

export interface SystemFailure {
  readonly code: ErrorCode;
  /** The event. The text stands behind "PATH: " or at the begin of a sentence. */
  readonly what: string;
  /** The remedy. */
  readonly advice: string;
}

const failure = (code: ErrorCode, what: string, advice: string): SystemFailure => ({ code, what, advice });

const NO_MEMORY = failure(
  'PROCESS_LIMIT',
  'the system gives this process no more memory',
  'give it more (`ulimit -v`, the limit of its container, --max-old-space-size in NODE_OPTIONS), or lower memory_budget and the caches',
);
const NO_THREAD = failure(
  'PROCESS_LIMIT',
  'the system starts no more threads or processes for this user',
  'raise the limit (`ulimit -u`, pids.max of its container), or end what holds many',
);
const THREAD_MEMORY = failure(
  'PROCESS_LIMIT',
  'a thread of this process has used up its memory',
  'ask for less at a time, or give Node more by --max-old-space-size in NODE_OPTIONS',
);

/** Limits of the process or of the machine. They may be met at any call, with or without a file. */
const LIMITS: Readonly<Record<string, SystemFailure>> = {
  EMFILE: failure(
    'PROCESS_LIMIT',
    'this process may open no more files and connections',
    'raise the limit to 1024 or more (`ulimit -n 1024`, LimitNOFILE= of its service) and start it again',
  ),
  ENFILE: failure('PROCESS_LIMIT', 'this machine may open no more files', 'end what holds many, or raise fs.file-max'),
  ENOMEM: NO_MEMORY,
  ENOBUFS: NO_MEMORY,
  ERR_MEMORY_ALLOCATION_FAILED: NO_MEMORY,
  ERR_WORKER_OUT_OF_MEMORY: THREAD_MEMORY,
  ERR_WORKER_INIT_FAILED: NO_THREAD,
  ENOSPC: failure('STORAGE_FULL', 'the disk is full', 'free some space'),
  EDQUOT: failure('STORAGE_FULL', 'the disk quota of this user is used up', 'free some space of it, or have it raised'),
};

/** Failures of an operation on a path. */
const OF_FILES: Readonly<Record<string, SystemFailure>> = {
  // Unlike a full disk, this failure leaves other files writable.
  EFBIG: failure(
    'STORAGE_FAILED',
    'a file may not be so large there',
    'raise the limit (`ulimit -f`), or take a file system that holds larger files (FAT32 ends at 4 GiB)',
  ),
  EACCES: failure(
    'STORAGE_FAILED',
    'this user may not use it',
    'check the permissions of it and of the directories above',
  ),
  EPERM: failure('STORAGE_FAILED', 'this user may not use it', 'check its permissions and whether it is immutable'),
  EROFS: failure('STORAGE_FAILED', 'the file system is read-only', 'choose another place, or mount it for writing'),
  EIO: failure(
    'STORAGE_FAILED',
    'the disk does not read or write it',
    "look at the system's log (`dmesg`) and at the disk",
  ),
  ENODEV: failure('STORAGE_FAILED', 'its device is gone', 'connect it again'),
  ENXIO: failure('STORAGE_FAILED', 'its device is gone', 'connect it again'),
  ESTALE: failure('STORAGE_FAILED', 'the server of the file system has another file there now', 'mount it again'),
  ELOOP: failure('STORAGE_FAILED', 'its symbolic links form a circle', 'correct the links'),
  ENAMETOOLONG: failure('STORAGE_FAILED', 'its name is too long', 'choose a shorter one'),
  EISDIR: failure('STORAGE_FAILED', 'a directory stands there, no file', 'name the file'),
  ENOTDIR: failure('STORAGE_FAILED', 'a part of the path is a file, no directory', 'correct the path'),
  ENOENT: failure('STORAGE_FAILED', 'there is nothing', 'correct the path, or make the directory'),
  EBUSY: failure('STORAGE_FAILED', 'something else uses it', 'end that first'),
  ETXTBSY: failure('STORAGE_FAILED', 'it is being executed', 'end that first'),
};

/** Node reports these failures by text alone; so does the native core's C++. */
const BY_TEXT: readonly [RegExp, SystemFailure][] = [
  [
    /array buffer allocation failed|failed to allocate|cannot create a buffer larger|bad_alloc|cannot allocate memory/i,
    NO_MEMORY,
  ],
  [/resource temporarily unavailable|thread constructor failed|\bEAGAIN\b.*\bthread|pthread_create/i, NO_THREAD],
];

/**
 * The known failure behind something that was thrown. null: no failure is known, and it may be a defect. Codes of files count only if the error
 * names a path.
 */
export function systemFailure(thrown: unknown): SystemFailure | null {
  if (!(thrown instanceof Error)) return null;
  const code = systemErrorCode(thrown);
  const limit = LIMITS[code];
  if (limit !== undefined) return limit;
  if (code === 'EAGAIN' && 'syscall' in thrown && String(thrown.syscall).startsWith('spawn')) return NO_THREAD;
  if (pathOf(thrown) !== null && isOfFiles(thrown)) return OF_FILES[code] ?? null;
  return BY_TEXT.find(([text]) => text.test(thrown.message))?.[1] ?? null;
}

/** The known failure of a file that could not be read or written; null: no failure is known. */
export function fileFailure(thrown: unknown): SystemFailure | null {
  return systemFailure(thrown) ?? OF_FILES[systemErrorCode(thrown)] ?? null;
}

/** The path that an error of node:fs names; null: none. */
export function pathOf(thrown: unknown): string | null {
  return thrown instanceof Error && 'path' in thrown && typeof thrown.path === 'string' ? thrown.path : null;
}

/** System error code ("ENOENT") of something thrown by Node; empty when it is something else. */
export function systemErrorCode(thrown: unknown): string {
  return thrown instanceof Error && 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : '';
}

/** An error of a process that cannot be started also names a path. */
function isOfFiles(thrown: Error): boolean {
  return !('syscall' in thrown) || !String(thrown.syscall).startsWith('spawn');
}
