/** The `odmoe` command, except the daemons (main, shadow, worker), `bench` and `plan cluster`, which bin/odmoe starts itself. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { packageRoot } from '../shared/base/files/package-root.js';
import { registerChatCommand } from './commands/chat.js';
import { registerDebugCommand } from './commands/debug.js';
import { registerDemoCommand } from './commands/demo.js';
import { registerDoctorCommand } from './commands/doctor.js';
import { registerGenerateCommand } from './commands/generate.js';
import { registerInspectCommand } from './commands/inspect.js';
import { registerPackCommand } from './commands/pack.js';
import { registerPlanCommand } from './commands/plan.js';
import { registerPromptCommand } from './commands/prompt.js';
import { registerSimulateCommand } from './commands/simulate.js';
import { registerStatusCommand } from './commands/status.js';
import { registerTopCommand } from './commands/top.js';
import { registerUpCommands } from './commands/up-down.js';
import { createProgram, runCommandLine } from './client/run-command-line.js';

const packageSchema = z.object({ version: z.string() });

const program = createProgram('odmoe')
  .description('Run a Mixture-of-Experts language model at full precision on a handful of small machines.')
  .version(packageSchema.parse(JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8'))).version);

registerDemoCommand(program);
registerPackCommand(program);
registerInspectCommand(program);
registerPlanCommand(program);
registerSimulateCommand(program);
registerUpCommands(program);
registerPromptCommand(program);
registerChatCommand(program);
registerGenerateCommand(program);
registerStatusCommand(program);
registerTopCommand(program);
registerDoctorCommand(program);
registerDebugCommand(program);

program.addHelpText(
  'after',
  `
Daemons, in the foreground:
  main|shadow|worker [flags]       one node of a cluster (odmoe worker --help)

Measuring:
  bench generate|pools|recall|...  benchmarks (odmoe bench --help)
  plan cluster [flags]             what given boxes would do, and how to set them up (odmoe plan cluster --help)

First steps:
  odmoe demo                                    a whole cluster on this machine answers a prompt
  odmoe pack ~/Mixtral-8x7B ~/mixtral-pack      prepare a model for a cluster
  odmoe up                                      start the nodes that cluster.yaml gives this host
  odmoe prompt "Tell me a story about a fox."   ask the cluster
  odmoe chat                                    talk with it

Exit status: 0 done, 2 bad usage or configuration, 3 the cluster or a model file is unusable, 1 anything else.`,
);

await runCommandLine(program, process.argv.slice(2));
