import { Command, CommanderError, Help } from 'commander';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { lastWords } from '../../engine/daemon/last-words.js';
import { requireAddon } from '../../native/index.js';
import { needsNativeLibrary } from './native-commands.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';

const USAGE_EXIT_STATUS = 2;
const OUTPUT_LOST_EXIT_STATUS = 3;

/** A program whose errors end as runCommandLine says. Its subcommands inherit that, if they are made by program.command(). */
export function createProgram(name: string): Command {
  return new Command(name)
    .exitOverride()
    .showHelpAfterError('Run it with --help to see how it is used.')
    .configureHelp({
      showGlobalOptions: false,
      helpWidth: 110,
      optionDescription: (option) => new Help().optionDescription(withReadableDefault(option)),
      argumentDescription: (argument) => new Help().argumentDescription(withReadableDefault(argument)),
    })
    .configureOutput({
      writeOut: (text) => standardOutput.write(text),
      writeErr: (text) => standardError.write(text),
      outputError: (text, write) => write(text.replace(/^error: /, 'odmoe: ')),
    });
}

/**
 * Parses the arguments and runs the command they name. Ends the process: status 0 done, 2 bad usage, else as the error says; what
 * went wrong is on stderr, as "odmoe: message [CODE]". A reader that closes stdout early (`| head`) ends it quietly.
 */
export async function runCommandLine(program: Command, args: readonly string[]): Promise<never> {
  standardOutput.onError((error) => {
    if (error.code === 'EPIPE') process.exit(0);
    standardError.write(`odmoe: standard output cannot be written (${error.message})\n`);
    process.exit(OUTPUT_LOST_EXIT_STATUS);
  });
  program.hook('preAction', (_program, command) => {
    if (needsNativeLibrary(command)) requireAddon();
  });
  const status = await statusOf(program, args);
  // What is written to a pipe is not there yet; the process ends when it is.
  await standardOutput.flushed();
  process.exit(status);
}

async function statusOf(program: Command, args: readonly string[]): Promise<number> {
  try {
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (thrown) {
    // Commander has said what is wrong; help and version come this way too, with status 0.
    if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? 0 : USAGE_EXIT_STATUS;
    standardError.write(lastWords('odmoe', thrown));
    return toOdmoeError(thrown).kind.exitStatus;
  }
}

/** How --help says a default value: lists with commas between, words without quotes; null: there is none worth saying. Pure. */
export function defaultWords(value: unknown): string | null {
  if (Array.isArray(value)) {
    const words = value.map(defaultWords);
    return words.length === 0 || words.includes(null) ? null : words.join(',');
  }
  if (typeof value === 'string') return value === '' ? null : value;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : null;
}

interface Described {
  description: string;
  defaultValue?: unknown;
  defaultValueDescription?: string | undefined;
}

/** A copy of commander's option or argument whose default reads as above; its description's own "(default: ...)" stands alone. */
export function withReadableDefault<T extends Described>(described: T): T {
  const copy = Object.assign(Object.create(Object.getPrototypeOf(described) as object) as T, described);
  if (described.defaultValue === undefined || described.defaultValueDescription !== undefined) return copy;
  const words = described.description.includes('(default') ? null : defaultWords(described.defaultValue);
  if (words === null) copy.defaultValue = undefined;
  else copy.defaultValueDescription = words;
  return copy;
}
