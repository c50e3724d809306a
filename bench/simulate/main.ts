/** `odmoe simulate`: started by bin/odmoe, as the command line itself imports no simulator. */
import { createProgram, runCommandLine } from '../../cli/run-command-line.js';
import { registerSimulate } from './index.js';

const program = createProgram('odmoe simulate');
registerSimulate(program);

await runCommandLine(program, process.argv.slice(2));
