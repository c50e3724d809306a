/** `odmoe bench`: bin/odmoe starts it, because the command line itself must not import benchmarks. */
import { createProgram, runCommandLine } from '../cli/client/run-command-line.js';
import { registerBenchCodec } from './codec/index.js';
import { registerBenchDeepen } from './deepen/index.js';
import { registerBenchEmulation } from './emulation/index.js';
import { registerBenchExpert } from './expert/index.js';
import { registerBenchFaults } from './faults/index.js';
import { registerBenchFluxmoe } from './fluxmoe/index.js';
import { registerBenchGenerate } from './generate/index.js';
import { registerBenchHop } from './hop/index.js';
import { registerBenchLimits } from './limits/index.js';
import { registerBenchLoad } from './load/index.js';
import { registerBenchOperators } from './operators/index.js';
import { registerBenchPaper } from './paper/index.js';
import { registerBenchPeers } from './peers/index.js';
import { registerBenchPools } from './pools/index.js';
import { registerBenchRecall } from './recall/index.js';
import { registerBenchSchedule } from './schedule/index.js';
import { registerBenchServe } from './serve/index.js';
import { registerBenchSynth } from './synth/index.js';
import { registerBenchTrace } from './trace/index.js';

const program = createProgram('odmoe bench').description(
  'Benchmarks; docs/results.md has results with their commands.',
);

registerBenchCodec(program);
registerBenchDeepen(program);
registerBenchEmulation(program);
registerBenchExpert(program);
registerBenchFaults(program);
registerBenchFluxmoe(program);
registerBenchGenerate(program);
registerBenchHop(program);
registerBenchLimits(program);
registerBenchLoad(program);
registerBenchOperators(program);
registerBenchPaper(program);
registerBenchPeers(program);
registerBenchPools(program);
registerBenchRecall(program);
registerBenchSchedule(program);
registerBenchServe(program);
registerBenchSynth(program);
registerBenchTrace(program);

await runCommandLine(program, process.argv.slice(2));
