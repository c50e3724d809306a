import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { standardError } from '../../shared/base/text/text-output.js';
import { isShortOfFiles, type ProcessKind, readProcessLimits, requireMemory } from './process-limits.js';

/** Read at the start, because the system cannot be asked when the process is short of file descriptors. */
const AT_BEGIN = readProcessLimits();

/** The last message of a process for its user: one line with a code; for a defect also the stack, because it should be reported. */
export function lastWords(name: string, thrown: unknown): string {
  const { message, code } = toOdmoeError(thrown);
  const stack = code === 'INTERNAL' && thrown instanceof Error ? `${thrown.stack ?? ''}\n` : '';
  return `${name}: ${message} [${code}]\n${stack}`;
}

/** Ends the process with the error as its last message and with the error's exit status. */
export function endWithWords(name: string, thrown: unknown): never {
  standardError.write(lastWords(name, thrown));
  process.exit(toOdmoeError(thrown).kind.exitStatus);
}

/** Ends a program when some of its modules could not be read. */
export function endUnread(name: string, thrown: unknown): never {
  const code = systemErrorCode(thrown);
  const isShort = isShortOfFiles(code, AT_BEGIN);
  endWithWords(name, isShort ? Object.assign(new Error(code), { code: 'EMFILE' }) : thrown);
}

/** Call before the modules of a program are read. Ends the process if there is too little memory for the program. */
export function requireRoom(name: string, kind: ProcessKind): void {
  try {
    requireMemory(AT_BEGIN, kind);
  } catch (thrown) {
    endWithWords(name, thrown);
  }
}
