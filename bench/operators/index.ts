import { InvalidArgumentError, type Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { tableLines } from '../../cli/output/table.js';
import { instructionSets, measureOperators, openDevice, type OperatorSpeed } from '../../native/index.js';
import { THREADS_LIMIT } from '../../shared/settings/setting-limits.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import type { MeasuredRun } from '../history/measured-run.js';

const KNOWN_SETS = ['avx512', 'avx2', 'neon', 'scalar'] as const;
type InstructionSet = (typeof KNOWN_SETS)[number];

interface BenchOperatorsFlags {
  instructionSet?: InstructionSet[];
  milliseconds: number;
  threads: number;
  json: boolean;
}

/** One line of the table, or one entry of --json. */
interface OperatorFigure extends OperatorSpeed {
  instructionSet: InstructionSet;
  /** The larger of both shares, which belongs to the nearer limit. */
  share: number;
}

/** `odmoe bench operators`: compares the CPU's operators with the limits of memory and multiply-add units. */
export function registerBenchOperators(bench: Command, run: MeasuredRun): void {
  bench
    .command('operators')
    .description("each operator's share of the memory read bandwidth or the multiply-add peak, by instruction set")
    .option('--instruction-set <list>', 'which ones (all that this processor has)', parseSets)
    .option('--milliseconds <n>', 'how long each operator is measured', parseTime, 300)
    .option('--threads <n>', 'threads to compute with (0: as many as there are)', wholeNumberFlag(0, THREADS_LIMIT), 0)
    .option('--json', 'print one JSON array and nothing else', false)
    .addHelpText(
      'after',
      `
Sizes are those of published models. In each round a buffer of 256 MiB is read, the multiply-add loop runs, and the operator is called
in turn on inputs that lie apart: 256 MiB in all, so that none is in a cache when its turn comes again. Medians over the rounds count,
against the best that reading and the loop have given. With --threads 1 it is processor time that counts, which says the same on a
busy machine.

read_share  bytes that a call must read and write, each once, over its time and the read bandwidth; more than 1 where the processor
            has some of them in a cache after all, or writes faster than it reads
fma_share   multiply-adds over its time and the peak of the instruction set; a multiplication, addition, comparison or division counts
            as one, though a division takes as long as many
share       the larger of both: of the nearer limit

Examples:
  odmoe bench operators
  odmoe bench operators --instruction-set avx2,scalar --threads 1 --json`,
    )
    .action(async (flags: BenchOperatorsFlags) => {
      const figures: OperatorFigure[] = [];
      for (const instructionSet of flags.instructionSet ?? usableSets())
        figures.push(...(await measure(instructionSet, flags)));
      run.print(snakeCaseKeys(figures), flags.json, () => `${asTable(figures)}\n`);
    });
}

async function measure(instructionSet: InstructionSet, flags: BenchOperatorsFlags): Promise<OperatorFigure[]> {
  const device = openDevice({ backend: 'cpu', instructionSet, threads: flags.threads, budgetBytes: 0 });
  try {
    const speeds = await measureOperators(device, flags.milliseconds);
    return speeds.map((speed) => ({ instructionSet, ...speed, share: Math.max(speed.readShare, speed.fmaShare) }));
  } finally {
    device.dispose();
  }
}

function asTable(figures: readonly OperatorFigure[]): string {
  const columns = ['set', 'operator', 'sizes', 'rows', 'ms', 'of reads', 'of multiply-adds', 'nearer'].map(
    (title, index) => ({ title, align: index < 3 ? ('left' as const) : ('right' as const) }),
  );
  const rows = figures.map((figure) => [
    figure.instructionSet,
    figure.operation,
    figure.sizes,
    String(figure.rows),
    figure.callMs.toFixed(3),
    percent(figure.readShare),
    percent(figure.fmaShare),
    percent(figure.share),
  ]);
  return tableLines(columns, rows).join('\n');
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function usableSets(): InstructionSet[] {
  const usable = instructionSets();
  return KNOWN_SETS.filter((set) => usable.includes(set));
}

function parseSets(value: string): InstructionSet[] {
  const usable = usableSets();
  return value.split(',').map((name) => {
    const set = usable.find((known) => known === name);
    if (set !== undefined) return set;
    throw new InvalidArgumentError(`'${name}' cannot be used on this processor; choose of ${usable.join(', ')}.`);
  });
}

function parseTime(value: string): number {
  const number = parseWhole(value);
  if (number > 0) return number;
  throw new InvalidArgumentError('It must be 1 or more.');
}
