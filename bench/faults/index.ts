import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import type { Command } from 'commander';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { requireWritableFile } from '../../shared/base/files/require-writable-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { countDrawn, neverDrawn, type DrawnCounts } from '../../simulator/faults/count-drawn.js';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { happenedIn, historyOf, runSeeds } from './run-seeds.js';
import { MARKS, standardError } from '../../shared/base/text/text-output.js';
import { ReferenceAnswers } from '../../simulator/faults/reference-answers.js';
import { runScenario } from '../../simulator/faults/run-scenario.js';
import { OperationLog } from '../../simulator/timing/operation-log.js';
import { timingDiagram } from '../../simulator/timing/timing-diagram.js';
import { describeScenario } from '../../simulator/faults/describe-scenario.js';
import type { Happened } from '../../simulator/faults/happened.js';
import type { Scenario } from '../../simulator/faults/scenario.js';
import { shrinkScenario } from '../../simulator/faults/shrink-scenario.js';
import type { SeedOutcome } from './seed-messages.js';
import type { MeasuredRun } from '../history/measured-run.js';

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
export function registerBenchFaults(bench: Command, run: MeasuredRun): void {
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
      await withInterrupt((signal) => benchFaults(flags, run, signal));
    });
}

async function benchFaults(flags: FaultsFlags, run: MeasuredRun, signal: AbortSignal): Promise<void> {
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
  run.print(report, json, () => faultsText(report, { tookMs, shown }));
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

/** The timing diagram of a seed's history until it is calm, as SVG text: the work of each node, and the faults. */
async function drawHistory(seed: number): Promise<string> {
  const scenario = drawScenario(seed);
  const log = new OperationLog(true);
  const references = new ReferenceAnswers();
  try {
    await runScenario(scenario, references, 0, log);
  } finally {
    await references.dispose();
  }
  for (const { kind, node, atMs, forMs } of scenario.faults) {
    log.add({
      position: -1,
      layer: -1,
      givenUp: false,
      node,
      kind: 'fault',
      label: kind,
      fromMs: atMs,
      toMs: atMs + Math.max(1, forMs),
    });
  }
  const lanes = scenario.nodes.map(({ settings }) => settings.id);
  const title = `seed ${seed}, ${scenario.model}, until ${scenario.calmMs} ms`;
  return timingDiagram(log.operations, lanes, { title, beginMs: 0, endMs: scenario.calmMs, positions: null });
}

interface FaultsReport {
  seeds: number;
  failures: Failure[];
  /** Hash of the histories of all seeds; it is the same on every run. */
  history: string;
  /** Counts of events in the mains of all seeds. */
  happened: Happened;
  drawn: DrawnCounts;
}

/** The report for people. `shown`: the scenario, if there is only one seed. */
function faultsText(
  { seeds, failures, history, happened, drawn }: FaultsReport,
  { tookMs, shown }: { tookMs: number; shown: Scenario | null },
): string {
  const failed = new Set(failures.map(({ seed }) => seed)).size;
  const lines = [
    ...(shown === null ? drawnLines(drawn) : describeScenario(shown)),
    '',
    ...failures.flatMap(failureLines),
    happenedLine(happened),
    trustLine(happened, drawn),
    `${seeds} seeds in ${(tookMs / 1000).toFixed(1)} s, ${failed} failed; history ${history}`,
  ];
  return `${lines.join('\n')}\n`;
}

function drawnLines(drawn: DrawnCounts): string[] {
  const never = neverDrawn(drawn);
  const counts = Object.entries(drawn).map(
    ([name, ofName]) =>
      `${name}: ${Object.entries(ofName)
        .map(([value, count]) => `${value} ${count}`)
        .join(', ')}`,
  );
  return [...counts, ...(never.length === 0 ? [] : [`never drawn: ${never.join('; ')}`])];
}

function happenedLine(happened: Happened): string {
  const { passes, sharedPasses, brokenSharedPasses, preemptions, cachedTokens, droppedPrefixes, storedTokens } =
    happened;
  const { cancelledAnswers, fetchedBytes, falsePieces, mayGo } = happened;
  return (
    `${passes} passes, ${sharedPasses} of several sequences, in which ${brokenSharedPasses} operations failed; ` +
    `${cancelledAnswers} answers were cancelled; ${preemptions} times memory was given back, ` +
    `${cachedTokens} tokens of prompts were there, ${storedTokens} of them on disk, ${droppedPrefixes} prefixes were dropped; ` +
    `${fetchedBytes} bytes of packs were fetched, ${falsePieces} times peers gave false ones; ${mayGo} times a drained node might go`
  );
}

function trustLine(happened: Happened, { authority }: DrawnCounts): string {
  const { letIn, renewals, endsOfOldKeys, removals, returns, oldRosters, refusedConnections, refusedCalls } = happened;
  return (
    `${authority?.['yes'] ?? 0} clusters with an authority: ${letIn} nodes were let in under load, ${renewals} keys renewed, ` +
    `${endsOfOldKeys} times old keys ended, ${removals} nodes removed, of which ${returns} came back with another key; ` +
    `main started ${oldRosters} times with an old roster; ${refusedConnections} connections and ${refusedCalls} calls were refused`
  );
}

function failureLines({ seed, invariant, detail, scenario }: Failure): string[] {
  const smallest =
    scenario.length === 0 ? [] : ['  the smallest scenario that fails so:', ...scenario.map((line) => `    ${line}`)];
  return [`seed ${seed}: ${invariant}: ${detail}`, ...smallest, `  again: odmoe bench faults --seed ${seed}`, ''];
}

interface Failure {
  seed: number;
  invariant: string;
  detail: string;
  /** The smallest scenario found that fails in the same way; empty: there was no search. */
  scenario: string[];
}

/** Most seeds for which a smaller scenario is searched, and most tries for each. */
const MOST_SHRUNK = 5;
const TRIES = 120;
/** A failure that ends the process cannot be tried in this process. */
const DEADLY = 'the process survives';

/** The failures of all seeds; for the first ones, with the smallest scenario. */
async function failuresOf(outcomes: readonly SeedOutcome[], shrink: boolean): Promise<Failure[]> {
  const references = new ReferenceAnswers();
  const failures: Failure[] = [];
  let shrunk = 0;
  try {
    for (const { seed, violations } of outcomes) {
      const [first] = violations;
      if (first === undefined) continue;
      const small = shrink && first.invariant !== DEADLY && shrunk++ < MOST_SHRUNK;
      const scenario = small ? await smallest(seed, first.invariant, references) : [];
      for (const violation of violations) failures.push({ seed, ...violation, scenario });
    }
  } finally {
    await references.dispose();
  }
  return failures;
}

async function smallest(seed: number, invariant: string, references: ReferenceAnswers): Promise<string[]> {
  const smaller = await shrinkScenario(
    drawScenario(seed),
    async (scenario) => {
      const { violations } = await runScenario(scenario, references);
      return violations.some((violation) => violation.invariant === invariant);
    },
    TRIES,
  );
  return describeScenario(smaller);
}
