/** What the system and Node allow this process. Where that is too little they end it in the middle, with no word that helps. */
import { readFileSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

export interface ProcessLimits {
  /** null: without limit, or not known. */
  openFiles: number | null;
  addressBytes: number | null;
  /** Of Node's heap. */
  heapBytes: number;
}

const MEBIBYTE = 1024 * 1024;
/** Below these nothing works: Node reserves addresses for its heaps, and main has one more, of the thread of prompts. */
const LEAST_BYTES = {
  command: { addresses: 1024 * MEBIBYTE, heap: 72 * MEBIBYTE },
  main: { addresses: 2048 * MEBIBYTE, heap: 80 * MEBIBYTE },
  shadow: { addresses: 1536 * MEBIBYTE, heap: 80 * MEBIBYTE },
  worker: { addresses: 1536 * MEBIBYTE, heap: 80 * MEBIBYTE },
};
export type ProcessKind = keyof typeof LEAST_BYTES;

/** Node opens the files of a program together; with fewer than these it says that a file is missing. */
const MODULES_OPEN_TOGETHER = 256;
const LIMITS_FILE = '/proc/self/limits';

/** Asks the system anew at each call. */
export function readProcessLimits(): ProcessLimits {
  let text = '';
  try {
    text = readFileSync(LIMITS_FILE, 'utf8');
  } catch {
    // No Linux, or no descriptor left: nothing is known.
  }
  const { heap_size_limit: heapBytes } = getHeapStatistics();
  const softLimit = (name: string): number | null => {
    const limit = Number(new RegExp(`^${name}\\s+(\\d+)`, 'm').exec(text)?.[1] ?? NaN);
    return Number.isNaN(limit) ? null : limit;
  };
  return { openFiles: softLimit('Max open files'), addressBytes: softLimit('Max address space'), heapBytes };
}

/** @throws PROCESS_LIMIT where there is too little memory to begin with */
export function requireMemory({ addressBytes, heapBytes }: ProcessLimits, kind: ProcessKind): void {
  const least = LEAST_BYTES[kind];
  if (addressBytes !== null && addressBytes < least.addresses) {
    throw new OdmoeError(
      'PROCESS_LIMIT',
      `the limit of ${formatByteSize(addressBytes)} on the addresses of this process is too low: Node alone reserves more; ` +
        `raise it to ${formatByteSize(least.addresses)} or more (\`ulimit -v\`), or bound memory by a container or memory_budget`,
    );
  }
  if (heapBytes < least.heap) {
    throw new OdmoeError(
      'PROCESS_LIMIT',
      `Node may use ${formatByteSize(heapBytes)} of heap, and odmoe needs ${formatByteSize(least.heap)}: ` +
        'raise --max-old-space-size in NODE_OPTIONS, or leave it out',
    );
  }
}

/** A module that Node does not find where descriptors are short is there: its folder could not be looked into. */
export function isShortOfFiles(code: string, { openFiles }: ProcessLimits): boolean {
  return code === 'ERR_MODULE_NOT_FOUND' && openFiles !== null && openFiles < MODULES_OPEN_TOGETHER;
}
