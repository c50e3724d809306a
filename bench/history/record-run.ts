import { spawnSync } from 'node:child_process';
import { appendFile } from 'node:fs/promises';
import { availableParallelism, cpus, loadavg, totalmem } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { cudaStatus, nativeStatus } from '../../native/index.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { requireWritableFile } from '../../shared/base/files/require-writable-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import type { MeasuredRun } from './measured-run.js';
import { commandLine, recordedFigures, type RunMachine, type RunLine } from './run-line.js';

/** The checkout that records a run, and the command of the run. */
export interface RecordPlace {
  /** Root of the checkout, or of the installation. */
  root: string;
  /** The words after `odmoe`. */
  args: readonly string[];
}

type RunBegin = Omit<RunLine, 'figures' | 'energy'>;

/**
 * Adds `--record` to each command that the program has so far. Such a run appends a line to bench/history when it has printed its figures. The
 * file is tried before the run begins. @throws STORAGE_FAILED, STORAGE_FULL by the command
 */
export function acceptRecord(program: Command, run: MeasuredRun, place: RecordPlace): void {
  for (const command of program.commands) {
    const path = join(place.root, 'bench', 'history', `${command.name()}.jsonl`);
    let begin: RunBegin | null = null;
    command.option(
      '--record',
      `append the figures, the machine and the commit to bench/history/${command.name()}.jsonl`,
    );
    command.hook('preAction', async () => {
      if (command.opts()['record'] !== true) return;
      await requireHistoryFile(path);
      begin = runBegin(place);
    });
    command.hook('postAction', async () => {
      if (begin !== null) await appendRun(path, begin, run);
    });
  }
}

async function requireHistoryFile(path: string): Promise<void> {
  try {
    await makeDirectories(join(path, '..'));
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
  requireWritableFile(path);
}

async function appendRun(path: string, begin: RunBegin, { figures, energy }: MeasuredRun): Promise<void> {
  const recorded = recordedFigures(requirePresent(figures, () => 'a benchmark that ends well has printed its figures'));
  const measured = energy === null ? {} : { energy: recordedFigures(energy) };
  try {
    await appendFile(path, `${JSON.stringify({ ...begin, ...measured, figures: recorded })}\n`);
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}

/** The facts that are read before the run begins, because the commit may be another one at its end. */
function runBegin({ root, args }: RecordPlace): RunBegin {
  const forcedSet = forcedInstructionSet();
  return {
    commit: commitOf(root),
    date: `${new Date().toISOString().slice(0, 'YYYY-MM-DDTHH:MM:SS'.length)}Z`,
    machine: thisMachine(forcedSet),
    command: `${forcedSet === null ? '' : `${SET_VARIABLE}=${forcedSet} `}${commandLine(['odmoe', ...args])}`,
    note: null,
  };
}

/** Kernels of this instruction set run in place of the widest one. */
const SET_VARIABLE = 'ODMOE_INSTRUCTION_SET';

/** Null: the widest set of the processor is used. */
function forcedInstructionSet(): string | null {
  const forced = process.env[SET_VARIABLE] ?? '';
  return forced === '' || forced === 'auto' ? null : forced;
}

const UNKNOWN_COMMIT = 'unknown';
const GIBIBYTE = 2 ** 30;

/** The short hash of the commit that is checked out at this root, "+changes" behind it if tracked files differ. */
export function commitOf(root: string): string {
  const [prefix = '', hash = ''] = gitLines(root, ['rev-parse', '--show-prefix', '--short', 'HEAD']) ?? [];
  // A prefix: the root lies within the checkout of another project.
  if (hash === '' || prefix !== '') return UNKNOWN_COMMIT;
  // Recording changes files of the history itself.
  const measured = ['.', ':(exclude)bench/history/*.jsonl'];
  const changes = gitLines(root, ['status', '--porcelain', '--untracked-files=no', '--', ...measured]);
  if (changes === null) return UNKNOWN_COMMIT;
  return changes.some((line) => line !== '') ? `${hash}+changes` : hash;
}

/** Null: git is not there, or this is no checkout. */
function gitLines(root: string, args: readonly string[]): string[] | null {
  const { status, stdout } = spawnSync('git', ['-C', root, ...args], { encoding: 'utf8' });
  return status === 0 ? stdout.split('\n') : null;
}

function thisMachine(forcedSet: string | null): RunMachine {
  const native = nativeStatus();
  const gpus = native.loaded ? cudaStatus().devices.map(({ name }) => name) : [];
  return {
    cpu: cpus()[0]?.model ?? null,
    cores: availableParallelism(),
    memory_gib: Math.round(totalmem() / GIBIBYTE),
    gpu: gpus.length === 0 ? null : gpus.join(', '),
    instruction_set: forcedSet ?? native.instructionSets[0] ?? null,
    load: loadavg()[0] ?? null,
  };
}
