/** `odmoe plan cluster`: bin/odmoe starts it, because the command line itself must not import the simulator. */
import { createProgram, runCommandLine } from './client/run-command-line.js';
import { registerPlanCluster } from './commands/plan-cluster.js';

const program = createProgram('odmoe plan cluster');
registerPlanCluster(program);

await runCommandLine(program, process.argv.slice(2));
