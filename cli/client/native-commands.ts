import type { Command } from 'commander';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';

type Need = boolean | ((command: Command) => boolean);

/** For each command: whether it, or a daemon that it starts, needs the native library. */
const NEEDS: Readonly<Record<string, Need>> = {
  'odmoe demo': true,
  'odmoe pack': true,
  'odmoe inspect': true,
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
  'odmoe debug counts': false,
  // Its check reports that the library is missing.
  'odmoe doctor': false,
  'odmoe bench codec': true,
  'odmoe bench deepen': false,
  'odmoe bench emulation': true,
  'odmoe bench expert': true,
  'odmoe bench faults': true,
  'odmoe bench fluxmoe': false,
  'odmoe bench generate': true,
  // --live asks a cluster. Without it, the round trips are measured between plain processes.
  'odmoe bench hop': false,
  'odmoe bench limits': true,
  'odmoe bench load': true,
  'odmoe bench operators': true,
  'odmoe bench paper': true,
  'odmoe bench peers': true,
  'odmoe bench pools': true,
  'odmoe bench recall': true,
  'odmoe bench schedule': false,
  'odmoe bench serve': true,
  'odmoe bench synth': false,
  'odmoe bench tables': false,
  'odmoe bench trace': true,
};

/** Called before a command begins: a command that needs the missing library ends at once, without any wait. */
export function needsNativeLibrary(command: Command): boolean {
  const name = commandName(command);
  const need = requirePresent(NEEDS[name], () => `the command "${name}" says whether it needs the native library.`);
  return typeof need === 'boolean' ? need : need(command);
}

function commandName(command: Command): string {
  return command.parent === null ? command.name() : `${commandName(command.parent)} ${command.name()}`;
}
