/** Limits that the system and Node set for this process. If they are too low, the process ends suddenly without a helpful message. */
import { readFileSync } from 'node:fs';
import { getHeapStatistics } from 'node:v8';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

export interface ProcessLimits {
  /** null: no limit, or unknown. */
  openFiles: number | null;
  addressBytes: number | null;
  /** Limit of Node's heap. */
  heapBytes: number;
}

const MEBIBYTE = 1024 * 1024;
/** The least that works: Node reserves addresses for its heaps, and main has one heap more, for the prompt thread. */
const LEAST_BYTES = {
  command: { addresses: 1024 * MEBIBYTE, heap: 72 * MEBIBYTE },
  main: { addresses: 2048 * MEBIBYTE, heap: 80 * MEBIBYTE },
  shadow: { addresses: 1536 * MEBIBYTE, heap: 80 * MEBIBYTE },
  worker: { addresses: 1536 * MEBIBYTE, heap: 80 * MEBIBYTE },
};
export type ProcessKind = keyof typeof LEAST_BYTES;

/** Node opens the files of a program together; with fewer descriptors than this it reports that a file is missing. */
const MODULES_OPEN_TOGETHER = 256;
const LIMITS_FILE = '/proc/self/limits';

/** Reads the limits from the system at each call. */
export function readProcessLimits(): ProcessLimits {
  let text = '';
  try {
    text = readFileSync(LIMITS_FILE, 'utf8');
  } catch {
    // Not Linux, or no descriptor left: the limits are unknown.
  }
  const { heap_size_limit: heapBytes } = getHeapStatistics();
  const softLimit = (name: string): number | null => {
    const limit = Number(new RegExp(`^${name}\\s+(\\d+)`, 'm').exec(text)?.[1] ?? NaN);
    return Number.isNaN(limit) ? null : limit;
  };
  return { openFiles: softLimit('Max open files'), addressBytes: softLimit('Max address space'), heapBytes };
}

/** @throws PROCESS_LIMIT when there is too little memory to start */
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

/** When descriptors are short, Node reports an existing module as missing, because it could not open the module's folder. */
export function isShortOfFiles(code: string, { openFiles }: ProcessLimits): boolean {
  return code === 'ERR_MODULE_NOT_FOUND' && openFiles !== null && openFiles < MODULES_OPEN_TOGETHER;
}
