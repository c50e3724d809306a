import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';
import { isShortOfFiles, type ProcessKind, readProcessLimits, requireMemory } from './process-limits.js';

/** Read at the start, because the system cannot be asked when the process is short of file descriptors. */
const AT_BEGIN = readProcessLimits();

/** The last message of a process for its user: one line with a code; for a defect also the stack, because it should be reported. */
export function lastWords(name: string, thrown: unknown): string {
  const { message, code } = toOdmoeError(thrown);
  const stack = code === 'INTERNAL' && thrown instanceof Error ? `${thrown.stack ?? ''}\n` : '';
  return `${name}: ${message} [${code}]\n${stack}`;
}

/** The object that --json prints on stdout in place of a result. `field`: the wrong field of a request; null: none is known. */
export function errorJson({ code, message, field }: OdmoeError): object {
  return { error: { code, message, field } };
}

/** A program that is about to end. */
export interface EndingProgram {
  /** It stands before the message. */
  name: string;
  /** The command was given --json. A result that is already on stdout stays the only object. */
  wantsJson: boolean;
}

/** Ends the process with the error as its last message and with the error's exit status. */
export function endWithWords({ name, wantsJson }: EndingProgram, thrown: unknown): never {
  const error = toOdmoeError(thrown);
  standardError.write(lastWords(name, thrown));
  if (wantsJson && !standardOutput.hasText) standardOutput.write(`${printableJson(errorJson(error))}\n`);
  process.exit(error.kind.exitStatus);
}

/** Ends a program when some of its modules could not be read. */
export function endUnread(program: EndingProgram, thrown: unknown): never {
  const code = systemErrorCode(thrown);
  if (isShortOfFiles(code, AT_BEGIN)) endWithWords(program, Object.assign(new Error(code), { code: 'EMFILE' }));
  if (code !== 'ERR_MODULE_NOT_FOUND') endWithWords(program, thrown);
  const { message } = toOdmoeError(thrown);
  const advice = `run \`npm run setup\` in ${packageRoot()}, or install odmoe again if npm has installed it`;
  endWithWords(
    program,
    new OdmoeError('INSTALLATION_INCOMPLETE', `a module is missing (${message}); ${advice}`, { cause: thrown }),
  );
}

/** Call before the modules of a program are read. Ends the process if there is too little memory for the program. */
export function requireRoom(program: EndingProgram, kind: ProcessKind): void {
  try {
    requireMemory(AT_BEGIN, kind);
  } catch (thrown) {
    endWithWords(program, thrown);
  }
}
