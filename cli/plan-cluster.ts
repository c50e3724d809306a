/** `odmoe plan cluster`: started by bin/odmoe, as the command line itself imports no simulator. */
import { createProgram, runCommandLine } from './client/run-command-line.js';
import { registerPlanCluster } from './commands/plan-cluster.js';

const program = createProgram('odmoe plan cluster');
registerPlanCluster(program);

await runCommandLine(program, process.argv.slice(2));
