import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { standardError } from '../../shared/base/text/text-output.js';
import { isShortOfFiles, type ProcessKind, readProcessLimits, requireMemory } from './process-limits.js';

/** While descriptors are short nothing can be asked. */
const AT_BEGIN = readProcessLimits();

/** What ends a process, as its user reads it: one line with a code; of a defect, which is to be reported, the stack as well. */
export function lastWords(name: string, thrown: unknown): string {
  const { message, code } = toOdmoeError(thrown);
  const stack = code === 'INTERNAL' && thrown instanceof Error ? `${thrown.stack ?? ''}\n` : '';
  return `${name}: ${message} [${code}]\n${stack}`;
}

/** Ends the process with what was thrown as its last words and its exit status. */
export function endWithWords(name: string, thrown: unknown): never {
  standardError.write(lastWords(name, thrown));
  process.exit(toOdmoeError(thrown).kind.exitStatus);
}

/** For a program whose modules could not all be read. */
export function endUnread(name: string, thrown: unknown): never {
  const code = systemErrorCode(thrown);
  const isShort = isShortOfFiles(code, AT_BEGIN);
  endWithWords(name, isShort ? Object.assign(new Error(code), { code: 'EMFILE' }) : thrown);
}

/** Before the modules of a program are read. Ends the process where they, and what they do, cannot have the memory. */
export function requireRoom(name: string, kind: ProcessKind): void {
  try {
    requireMemory(AT_BEGIN, kind);
  } catch (thrown) {
    endWithWords(name, thrown);
  }
}
