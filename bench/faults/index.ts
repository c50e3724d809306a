import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import type { Command } from 'commander';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { requireWritableFile } from '../../shared/base/files/require-writable-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { countDrawn } from '../../simulator/faults/count-drawn.js';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { drawHistory } from './draw-history.js';
import { faultsText, type FaultsReport } from './faults-report.js';
import { happenedIn, historyOf, runSeeds } from './run-seeds.js';
import { failuresOf } from './shrink-failures.js';
import { MARKS, standardError, standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

const MOST_SEEDS = 1_000_000;
const MOST_PROCESSES = 256;
const HIGHEST_SEED = 2 ** 31;

interface FaultsFlags {
  seeds: number;
  from: number;
  seed?: number;
  processes: number;
  shrink: boolean;
  diagram?: string;
  json: boolean;
}

/** Adds `odmoe bench faults`. */
export function registerBenchFaults(bench: Command): void {
  bench
    .command('faults')
    .description(
      'clusters in one process, with settings, requests and faults that a seed draws; checks what must always be so',
    )
    .option('--seeds <count>', 'how many seeds', wholeNumberFlag(1, MOST_SEEDS), 500)
    .option('--from <seed>', 'the first one', wholeNumberFlag(0, HIGHEST_SEED), 0)
    .option('--seed <seed>', 'this one alone, and what it draws', wholeNumberFlag(0, HIGHEST_SEED))
    .option(
      '--processes <count>',
      'processes that share the seeds',
      wholeNumberFlag(1, MOST_PROCESSES),
      availableParallelism(),
    )
    .option('--diagram <file>', 'with --seed: draw its history as an SVG')
    .option('--no-shrink', 'show failures as they were drawn, not the smallest scenario that still fails')
    .option('--json', 'one JSON object on stdout', false)
    .addHelpText(
      'after',
      `
The daemons' own code runs on a virtual clock, an in-memory network and the processor's arithmetic. A finished answer must equal the
single-process engine's to the bit, every request must end, and nothing may be left when all is over. The same seeds have the same
history on every machine, whatever the processes. Exit status 1 when something fails.

Examples:
  odmoe bench faults --seeds 500
  odmoe bench faults --seed 17 --diagram history.svg`,
    )
    .action(async (flags: FaultsFlags, command: Command) => {
      if (flags.diagram !== undefined && flags.seed === undefined) {
        command.error('error: --diagram draws the history of one seed: give it by --seed');
      }
      await withInterrupt((signal) => run(flags, signal));
    });
}

async function run(flags: FaultsFlags, signal: AbortSignal): Promise<void> {
  const { seed, processes, json, diagram } = flags;
  if (diagram !== undefined) requireWritableFile(diagram);
  const [from, count] = seed === undefined ? [flags.from, flags.seeds] : [seed, 1];
  const beganMs = performance.now();
  const progress = { done: 0, failed: 0 };
  const outcomes = await runSeeds({
    from,
    count,
    processes,
    signal,
    onOutcome: ({ violations }) => {
      progress.done += 1;
      if (violations.length > 0) progress.failed += 1;
      if (standardError.isTerminal)
        standardError.write(MARKS.toLineBegin, `${progress.done} of ${count} seeds, ${progress.failed} failed`);
    },
  });
  if (standardError.isTerminal) standardError.write('\n');
  if (signal.aborted) throw new OdmoeError('CANCELLED', 'interrupted: the seeds that were run are not reported');
  const report: FaultsReport = {
    seeds: count,
    failures: await failuresOf(outcomes, flags.shrink),
    history: historyOf(outcomes),
    happened: happenedIn(outcomes),
    drawn: countDrawn(scenariosOf(from, count)),
  };
  const tookMs = performance.now() - beganMs;
  const shown = seed === undefined ? null : drawScenario(seed);
  standardOutput.write(json ? `${printableJson(report)}\n` : faultsText(report, { tookMs, shown }));
  if (diagram !== undefined && seed !== undefined) await writeDiagram(diagram, seed);
  if (report.failures.length > 0) process.exitCode = 1;
}

/** @throws STORAGE_FULL, STORAGE_FAILED */
async function writeDiagram(path: string, seed: number): Promise<void> {
  const svg = await drawHistory(seed);
  try {
    await writeFile(path, svg);
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}

function* scenariosOf(from: number, count: number): Generator<ReturnType<typeof drawScenario>> {
  for (let seed = from; seed < from + count; seed++) yield drawScenario(seed);
}
