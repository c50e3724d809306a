import { Command, CommanderError, Option } from 'commander';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { defaultClusterConfig, loadClusterConfig } from '../../shared/settings/load-cluster-config.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { resolveNodeSettings, thisHost, type ThisHost } from '../../shared/settings/resolve-node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import type { Setting } from '../../shared/settings/setting.js';
import { rowsWithFlag, type DaemonFlags } from '../../shared/settings/settings-table.js';

/** The request in a daemon's arguments: to run, or only to print its help. */
export type DaemonRequest =
  | { kind: 'run'; settings: NodeSettings; exitWithParent: boolean }
  | { kind: 'help'; text: string };

/**
 * Reads a daemon's arguments (without the interpreter and script) and the configuration that they name. Throws USAGE for a wrong flag,
 * CONFIG_INVALID for settings that contradict one another. `host`: that on which the daemon is to run; `root`: the directory here of its files.
 */
export function parseDaemonFlags(
  role: RoleSetting,
  argv: readonly string[],
  host: ThisHost = thisHost(),
  root = '/',
): DaemonRequest {
  let help = '';
  const command = daemonCommand(role).configureOutput({
    writeOut: (text) => {
      help += text;
    },
    writeErr: () => undefined,
  });
  try {
    command.parse([...argv], { from: 'user' });
  } catch (thrown) {
    if (!(thrown instanceof CommanderError)) throw thrown;
    if (thrown.exitCode === 0) return { kind: 'help', text: help };
    const reason = thrown.message.replace(/^error: /, '');
    throw new OdmoeError('USAGE', `${reason}\n\`odmoe ${role} --help\` tells what there is`, { cause: thrown });
  }
  const { path, exitWithParent, flags } = givenFlags(command);
  const config = path === undefined ? defaultClusterConfig() : loadClusterConfig(path, root);
  return {
    kind: 'run',
    settings: resolveNodeSettings(role, config, flags, host),
    exitWithParent,
  };
}

/** The flags that the user gave, and the two that are no settings. */
function givenFlags(command: Command): { path: string | undefined; exitWithParent: boolean; flags: DaemonFlags } {
  const { config, exitWithParent, ...settings } = command.opts<{ config?: string; exitWithParent?: boolean }>();
  // Commander gives true for a flag that begins with --no- and is absent. The configuration then decides.
  const given = Object.entries(settings).filter(([name]) => command.getOptionValueSource(name) === 'cli');
  return { path: config, exitWithParent: exitWithParent === true, flags: Object.fromEntries(given) };
}

const SUMMARIES: Record<RoleSetting, string> = {
  main: 'The daemon that answers: attention, routers and the KV cache are here; experts run on the workers.',
  shadow: 'The daemon that predicts: a quantized copy of the model runs ahead and tells workers what to load.',
  worker: 'A daemon that loads experts just in time, runs them and drops them again.',
};

function daemonCommand(role: RoleSetting): Command {
  const command = new Command(`odmoe ${role}`)
    .description(`${SUMMARIES[role]} Runs in the foreground; Ctrl-C stops it.`)
    .exitOverride()
    .allowExcessArguments(false)
    .option('--config <file>', 'cluster.yaml to start from; flags override what it says');
  for (const row of rowsWithFlag(role)) command.addOption(optionOf(row, role));
  return command
    .option('--exit-with-parent', 'stop when standard input ends or the starting process dies')
    .addHelpText('after', examples(role));
}

function optionOf({ flag, kind }: Setting, role: RoleSetting): Option {
  const option = new Option(flag?.usage ?? '', flag?.roles[role]);
  if (kind.choices !== undefined) return option.choices(kind.choices);
  return option.isBoolean() || option.negate || kind.parseFlag === undefined
    ? option
    : option.argParser(kind.parseFlag);
}

function examples(role: RoleSetting): string {
  const pack = '--model mixtral-pack';
  const lines: Record<RoleSetting, string[]> = {
    main: [
      `odmoe main ${pack}`,
      `odmoe main ${pack} --experts local --host-memory auto`,
      `odmoe main ${pack} --discovery static --config cluster.yaml --id main`,
    ],
    shadow: [`odmoe shadow ${pack} --precision nf4`, `odmoe shadow ${pack} --main 192.168.1.20:7600`],
    worker: [
      `odmoe worker ${pack} --memory-budget "2 GiB" --slots 2`,
      `odmoe worker ${pack} --memory-budget "8 GiB" --cache "6 GiB"`,
      `odmoe worker --main 192.168.1.20:7600 --port 7610`,
    ],
  };
  return `\nExamples:\n${lines[role].map((line) => `  ${line}\n`).join('')}`;
}
