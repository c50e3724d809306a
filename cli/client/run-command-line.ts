import { Command, CommanderError, Help } from 'commander';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { errorJson, lastWords } from '../../engine/daemon/last-words.js';
import { requireAddon } from '../../native/index.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';

const OUTPUT_LOST_EXIT_STATUS = 3;

type Need = boolean | ((command: Command) => boolean);

/** For each command: whether it, or a daemon that it starts, needs the native library. */
const NEEDS: Readonly<Record<string, Need>> = {
  'odmoe demo': true,
  'odmoe run': true,
  'odmoe pull': true,
  'odmoe models': false,
  // The library tells whether a daemon uses the pack.
  'odmoe rm': (command) => command.opts()['force'] !== true,
  'odmoe pack': true,
  'odmoe inspect': true,
  'odmoe fit': true,
  'odmoe plan': true,
  'odmoe plan cluster': false,
  'odmoe simulate': false,
  'odmoe up': true,
  'odmoe down': false,
  'odmoe prompt': false,
  // Without arguments it talks to a cluster and needs no library; with a model it loads the library into its own process.
  'odmoe chat': ({ args }) => args.length > 0,
  'odmoe generate': true,
  'odmoe status': false,
  'odmoe top': false,
  'odmoe health': false,
  // A service that cannot start would be started again and again.
  'odmoe service install': true,
  'odmoe service status': false,
  'odmoe service logs': false,
  'odmoe service remove': false,
  'odmoe debug counts': false,
  'odmoe accept': false,
  // The library locks the files of the authority.
  'odmoe cluster init': true,
  'odmoe cluster backup': false,
  'odmoe cluster restore': true,
  'odmoe drain': false,
  'odmoe node list': false,
  'odmoe node remove': false,
  'odmoe node replace': false,
  'odmoe operator add': false,
  'odmoe operator join': false,
  'odmoe token create': false,
  'odmoe token list': false,
  'odmoe token revoke': false,
  // It builds the library.
  'odmoe setup': false,
  // Its check reports that the library is missing.
  'odmoe doctor': false,
  'odmoe bench codec': true,
  'odmoe bench deepen': false,
  'odmoe bench drafts': true,
  'odmoe bench emulation': true,
  'odmoe bench expert': true,
  'odmoe bench faults': true,
  'odmoe bench fluxmoe': false,
  'odmoe bench generate': true,
  'odmoe bench homes': false,
  // --live asks a cluster. Without it, the round trips are measured between plain processes.
  'odmoe bench hop': false,
  'odmoe bench limits': true,
  'odmoe bench load': true,
  'odmoe bench operators': true,
  'odmoe bench paper': true,
  'odmoe bench peers': true,
  'odmoe bench pools': true,
  'odmoe bench prefix-store': true,
  'odmoe bench recall': true,
  'odmoe bench recording': true,
  'odmoe bench report': false,
  'odmoe bench schedule': false,
  'odmoe bench serve': true,
  'odmoe bench slices': true,
  'odmoe bench synth': false,
  'odmoe bench tables': false,
  'odmoe bench trace': true,
  'odmoe bench trust': true,
};

/** A program that ends on errors as runCommandLine describes. Subcommands made by program.command() inherit this. */
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
 * Parses the arguments and runs the command that they name. Ends the process with status 0 (done), 2 (bad usage) or the error's own status.
 * The error goes to stderr, as "odmoe: message [CODE]"; with --json, also as an object to stdout. If the reader closes stdout early (`| head`), the process ends quietly.
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
  // Output to a pipe may still be in flight; the process ends after it has been written.
  await standardOutput.flushed();
  process.exit(status);
}

/** Called before a command begins: a command that needs the missing library ends at once, without any wait. */
function needsNativeLibrary(command: Command): boolean {
  const name = commandName(command);
  const need = requirePresent(NEEDS[name], () => `the command "${name}" says whether it needs the native library.`);
  return typeof need === 'boolean' ? need : need(command);
}

function commandName(command: Command): string {
  return command.parent === null ? command.name() : `${commandName(command.parent)} ${command.name()}`;
}

async function statusOf(program: Command, args: readonly string[]): Promise<number> {
  try {
    await program.parseAsync(args, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (thrown) {
    // Help and version also come here, with status 0.
    if (thrown instanceof CommanderError && thrown.exitCode === 0) return 0;
    // Commander has already printed its own faults.
    if (!(thrown instanceof CommanderError)) standardError.write(lastWords('odmoe', thrown));
    const error = thrown instanceof CommanderError ? usageError(thrown) : toOdmoeError(thrown);
    // A result that is already there stays the only object.
    if (asksForJson(program, args) && !standardOutput.hasText)
      standardOutput.write(`${printableJson(errorJson(error))}\n`);
    return error.kind.exitStatus;
  }
}

function usageError({ message }: CommanderError): OdmoeError {
  return new OdmoeError('USAGE', message.replace(/^error: /, ''));
}

/** True if the arguments name a command that has --json, and give it. They are read as they are, because a fault may end their parsing early. */
export function asksForJson(program: Command, args: readonly string[]): boolean {
  let command = program;
  for (const word of args) {
    if (word === '--') return false;
    if (word === '--json') return command.options.some(({ long }) => long === '--json');
    command = command.commands.find((child) => child.name() === word) ?? command;
  }
  return false;
}

/** The text of a default value in --help: lists separated by commas, words without quotes; null: there is none worth showing. Pure. */
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

/** A copy of commander's option or argument with that default text. If its description has its own "(default: ...)", no other is added. */
export function withReadableDefault<T extends Described>(described: T): T {
  const copy = Object.assign(Object.create(Object.getPrototypeOf(described) as object) as T, described);
  if (described.defaultValue === undefined || described.defaultValueDescription !== undefined) return copy;
  const words = described.description.includes('(default') ? null : defaultWords(described.defaultValue);
  if (words === null) copy.defaultValue = undefined;
  else copy.defaultValueDescription = words;
  return copy;
}
