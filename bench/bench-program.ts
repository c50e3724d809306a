import type { Command } from 'commander';
import { createProgram } from '../cli/client/run-command-line.js';
import { registerBenchCodec } from './codec/index.js';
import { registerBenchDeepen } from './deepen/index.js';
import { registerBenchDrafts } from './drafts/index.js';
import { registerBenchEmulation } from './emulation/index.js';
import { registerBenchExpert } from './expert/index.js';
import { registerBenchFaults } from './faults/index.js';
import { registerBenchFluxmoe } from './fluxmoe/index.js';
import { registerBenchGenerate } from './generate/index.js';
import { registerBenchTables } from './history/index.js';
import { MeasuredRun } from './history/measured-run.js';
import { acceptRecord, type RecordPlace } from './history/record-run.js';
import { registerBenchHomes } from './homes/index.js';
import { registerBenchHop } from './hop/index.js';
import { registerBenchLimits } from './limits/index.js';
import { registerBenchLoad } from './load/index.js';
import { registerBenchOperators } from './operators/index.js';
import { registerBenchPaper } from './paper/index.js';
import { registerBenchPeers } from './peers/index.js';
import { registerBenchPools } from './pools/index.js';
import { registerBenchPrefixStore } from './prefix-store/index.js';
import { registerBenchRecall } from './recall/index.js';
import { registerBenchRecording } from './recording/index.js';
import { registerBenchSchedule } from './schedule/index.js';
import { registerBenchServe } from './serve/index.js';
import { registerBenchSlices } from './slices/index.js';
import { registerBenchSynth } from './synth/index.js';
import { registerBenchTrace } from './trace/index.js';
import { registerBenchTrust } from './trust/index.js';

/** They print figures. */
const MEASURING: readonly ((bench: Command, run: MeasuredRun) => void)[] = [
  registerBenchCodec,
  registerBenchDrafts,
  registerBenchEmulation,
  registerBenchExpert,
  registerBenchFaults,
  registerBenchFluxmoe,
  registerBenchGenerate,
  registerBenchHomes,
  registerBenchHop,
  registerBenchLimits,
  registerBenchLoad,
  registerBenchOperators,
  registerBenchPaper,
  registerBenchPeers,
  registerBenchPools,
  registerBenchPrefixStore,
  registerBenchRecall,
  registerBenchRecording,
  registerBenchSchedule,
  registerBenchServe,
  registerBenchSlices,
  registerBenchTrust,
];

/** The commands of `odmoe bench`. Those that measure take `--record`; the others write files. */
export function benchProgram(place: RecordPlace): Command {
  const program = createProgram('odmoe bench').description(
    'Benchmarks; docs/results.md has results with their commands.',
  );
  program.addHelpText(
    'after',
    '\n"odmoe bench report --help": measure a running cluster, and print the text of an issue.',
  );
  const run = new MeasuredRun();
  for (const register of MEASURING) register(program, run);
  acceptRecord(program, run, place);
  registerBenchDeepen(program);
  registerBenchSynth(program);
  registerBenchTables(program, place.root);
  registerBenchTrace(program);
  return program;
}
