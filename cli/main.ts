/** The `odmoe` command, except the daemons (main, shadow, worker), `bench` and `plan cluster`, which bin/odmoe starts itself. */
import type { Command } from 'commander';
import { odmoeVersion } from '../shared/base/files/odmoe-version.js';
import { createProgram, runCommandLine } from './client/run-command-line.js';

interface CommandModule {
  readonly names: readonly string[];
  readonly read: () => Promise<(program: Command) => void>;
}

/**
 * The commands, in the order of --help. The module of a command is read only where that command is named (or help is, for all of them): to read
 * all of them takes a second, and several on a small board.
 */
const COMMANDS: readonly CommandModule[] = [
  { names: ['demo'], read: async () => (await import('./commands/demo.js')).registerDemoCommand },
  { names: ['run'], read: async () => (await import('./commands/run.js')).registerRunCommand },
  { names: ['pull'], read: async () => (await import('./commands/pull.js')).registerPullCommand },
  { names: ['models'], read: async () => (await import('./commands/models.js')).registerModelsCommand },
  { names: ['rm'], read: async () => (await import('./commands/rm.js')).registerRemoveCommand },
  { names: ['pack'], read: async () => (await import('./commands/pack.js')).registerPackCommand },
  { names: ['inspect'], read: async () => (await import('./commands/inspect.js')).registerInspectCommand },
  { names: ['fit'], read: async () => (await import('./commands/fit.js')).registerFitCommand },
  { names: ['plan'], read: async () => (await import('./commands/plan.js')).registerPlanCommand },
  { names: ['simulate'], read: async () => (await import('./commands/simulate.js')).registerSimulateCommand },
  { names: ['up', 'down'], read: async () => (await import('./commands/up-down.js')).registerUpCommands },
  { names: ['prompt'], read: async () => (await import('./commands/prompt.js')).registerPromptCommand },
  { names: ['chat'], read: async () => (await import('./commands/chat.js')).registerChatCommand },
  { names: ['generate'], read: async () => (await import('./commands/generate.js')).registerGenerateCommand },
  { names: ['status'], read: async () => (await import('./commands/status.js')).registerStatusCommand },
  { names: ['top'], read: async () => (await import('./commands/top.js')).registerTopCommand },
  { names: ['service'], read: async () => (await import('./commands/service.js')).registerServiceCommand },
  { names: ['health'], read: async () => (await import('./commands/health.js')).registerHealthCommand },
  { names: ['cluster'], read: async () => (await import('./commands/cluster.js')).registerClusterCommand },
  { names: ['accept'], read: async () => (await import('./commands/accept.js')).registerAcceptCommand },
  { names: ['token'], read: async () => (await import('./commands/token.js')).registerTokenCommand },
  { names: ['operator'], read: async () => (await import('./commands/operator.js')).registerOperatorCommand },
  { names: ['drain'], read: async () => (await import('./commands/drain.js')).registerDrainCommand },
  { names: ['node'], read: async () => (await import('./commands/node.js')).registerNodeCommand },
  { names: ['doctor'], read: async () => (await import('./commands/doctor.js')).registerDoctorCommand },
  { names: ['setup'], read: async () => (await import('./commands/setup.js')).registerSetupCommand },
  { names: ['debug'], read: async () => (await import('./commands/debug.js')).registerDebugCommand },
];

const program = createProgram('odmoe')
  .description('Run a Mixture-of-Experts language model at full precision on a handful of small machines.')
  .version(odmoeVersion());

const [named] = process.argv.slice(2);
const chosen = COMMANDS.filter(({ names }) => names.includes(named ?? ''));
if (named !== '--version' && named !== '-V') {
  for (const { read } of chosen.length > 0 ? chosen : COMMANDS) (await read())(program);
}

program.addHelpText(
  'after',
  `
Daemons, in the foreground:
  main|shadow|worker [flags]       one node of a cluster (odmoe worker --help)

Measuring:
  bench generate|pools|recall|...  benchmarks, in a clone of odmoe's repository (odmoe bench --help)
  plan cluster [flags]             what given boxes would do, and how to set them up (odmoe plan cluster --help)

First steps:
  odmoe demo                                    a whole cluster on this machine answers a prompt
  odmoe run Qwen/Qwen3-30B-A3B                  get a model of the hub and serve it here
  odmoe worker --cluster home                   on another box: ask to be let in (main runs with --lan)
  odmoe accept 482913                           let in the box that shows this code
  odmoe service install worker                  have systemd run it, now and at each boot
  odmoe prompt "Tell me a story about a fox."   ask the cluster
  odmoe chat                                    talk with it

Exit status: 0 done, 2 bad usage or configuration, 3 the cluster or a model file is unusable,
4 the machine was removed from its cluster, 1 anything else.`,
);

await runCommandLine(program, process.argv.slice(2));
