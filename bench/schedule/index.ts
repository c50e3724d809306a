import { InvalidArgumentError, type Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { tableLines } from '../../cli/output/table.js';
import { measureSchedules, type ScheduleBenchResult } from './measure-schedules.js';
import type { MeasuredRun } from '../history/measured-run.js';

const MOST_INSTANCES = 10_000_000;

interface ScheduleFlags {
  instances: number;
  experts: number;
  seed: number;
  json: boolean;
}

/** `odmoe bench schedule`: compares the block scheduler with a lower bound for all schedules, and with FIFO order. */
export function registerBenchSchedule(bench: Command, run: MeasuredRun): void {
  bench
    .command('schedule')
    .description('compare the block scheduler with a lower bound and with FIFO order, on random instances')
    .option('--instances <n>', 'random instances', wholeNumberFlag(1, MOST_INSTANCES), 2000)
    .option('--experts <n>', 'most experts of an instance, three tensors each', parseExperts, 16)
    .option('--seed <n>', 'the same seed gives the same instances', parseWhole, 1)
    .option('--json', 'print one JSON array and nothing else', false)
    .addHelpText(
      'after',
      `
Nothing is loaded: schedules are carried out by simulation. Recovery "after" decompression is ZipMoE's (a GPU recovers); "with"
decompression, in one operation, is what odmoe's loader does.`,
    )
    .action((flags: ScheduleFlags) => {
      const results = measureSchedules(flags, () => performance.now());
      run.print(snakeCaseKeys(results), flags.json, () => `${asTable(results)}\n`);
    });
}

function asTable(results: readonly ScheduleBenchResult[]): string {
  const titles = [
    'recovery',
    'to bound',
    'worst',
    'worst of 3 - 1/L',
    'to FIFO',
    'worst',
    'FIFO faster',
    'ms a schedule',
  ];
  const columns = titles.map((title, index) => ({
    title,
    align: index === 0 ? ('left' as const) : ('right' as const),
  }));
  const rows = results.map((result) => [
    result.recovery,
    result.toBoundMean.toFixed(3),
    result.toBoundWorst.toFixed(3),
    `${(result.ofGuaranteeWorst * 100).toFixed(0)} %`,
    result.toFifoMean.toFixed(3),
    result.toFifoWorst.toFixed(3),
    `${(result.fifoFasterShare * 100).toFixed(1)} %`,
    result.scheduleMs.toFixed(3),
  ]);
  return tableLines(columns, rows).join('\n');
}

function parseExperts(value: string): number {
  const number = parseWhole(value);
  if (number > 1) return number;
  throw new InvalidArgumentError('It must be 2 or more.');
}
