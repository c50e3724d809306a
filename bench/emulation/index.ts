import { InvalidArgumentError, type Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { tableLines } from '../../cli/output/table.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { measureEmulation, type EmulationLateness } from './measure-emulation.js';
import type { MeasuredRun } from '../history/measured-run.js';

interface BenchEmulationFlags {
  count: number;
  json: boolean;
}

/** `odmoe bench emulation`: measures how exactly this machine reproduces a profiled device's times. */
export function registerBenchEmulation(bench: Command, run: MeasuredRun): void {
  bench
    .command('emulation')
    .description('how late waits, executes and loads of an emulated device end on this machine')
    .argument('[model]', 'a pack, or a Hugging Face checkpoint directory, whose experts are used', 'models/demo')
    .option('--count <n>', 'operations of each kind', parseCount, 200)
    .option('--json', 'print one JSON array and nothing else', false)
    .addHelpText(
      'after',
      `
Each operation is timed in JavaScript, from the call until its promise has settled: lateness has the way there and back in it.
"queued executes" are asked for together and counted together: they show whether lateness adds up. The processor's share is that of
the whole process while the operations took their time; the arithmetic of the model is in it.

Examples:
  odmoe bench emulation
  odmoe bench emulation ~/mixtral-pack --count 1000 --json`,
    )
    .action(async (model: string, flags: BenchEmulationFlags) => {
      const lateness = await measureEmulation(await openModelSource(model), flags.count);
      run.print(snakeCaseKeys(lateness), flags.json, () => `${asTable(lateness)}\n`);
    });
}

function asTable(lateness: readonly EmulationLateness[]): string {
  const titles = ['operation', 'count', 'late p50 ms', 'p99 ms', 'worst ms', 'processor'];
  const columns = titles.map((title, index) => ({
    title,
    align: index === 0 ? ('left' as const) : ('right' as const),
  }));
  const rows = lateness.map(({ operation, count, p50Ms, p99Ms, worstMs, processorShare }) => [
    operation,
    String(count),
    p50Ms.toFixed(3),
    p99Ms.toFixed(3),
    worstMs.toFixed(3),
    `${(processorShare * 100).toFixed(1)} %`,
  ]);
  return tableLines(columns, rows).join('\n');
}

function parseCount(value: string): number {
  const number = parseWhole(value);
  if (number > 0) return number;
  throw new InvalidArgumentError('It must be 1 or more.');
}
