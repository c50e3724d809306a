/** `odmoe bench report`: bin/odmoe starts it, because an installed odmoe has no other benchmarks. */
import { createProgram, runCommandLine } from './client/run-command-line.js';
import { registerBenchReport } from './commands/bench-report.js';

const program = createProgram('odmoe bench report');
registerBenchReport(program);

await runCommandLine(program, process.argv.slice(2));
