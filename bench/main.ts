/** `odmoe bench`: bin/odmoe starts it, because the command line itself must not import benchmarks. */
import { runCommandLine } from '../cli/client/run-command-line.js';
import { packageRoot } from '../shared/base/files/package-root.js';
import { benchProgram } from './bench-program.js';

const args = process.argv.slice(2);
await runCommandLine(benchProgram({ root: packageRoot(), args: ['bench', ...args] }), args);
