import { InvalidArgumentError, type Command } from 'commander';
import { addMainFlags, findMain, type MainFlags } from '../../cli/client/find-main.js';
import { avoidMarkingPauses } from '../../engine/daemon/collection-pauses.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { liveHopsJson, liveHopsTable, measureLiveHops } from './live-hops.js';
import { hopsJson, hopsTable } from './hops-table.js';
import { measureHops } from './measure-hops.js';
import type { MeasuredRun } from '../history/measured-run.js';

const MOST_TOKENS = 65_536;

interface HopOptions extends MainFlags {
  seconds: number;
  live?: boolean;
  tokens: number;
  json?: boolean;
}

/** Adds `odmoe bench hop`. */
export function registerBenchHop(bench: Command, run: MeasuredRun): void {
  addMainFlags(bench.command('hop'))
    .description(
      'round trip of one hidden state main -> worker -> main by gRPC, in plaintext and behind TLS with certificates on both sides, ' +
        'beside a plain TCP ping-pong in the same run',
    )
    .option('--seconds <count>', 'how long to measure, in all', seconds, 12)
    .option(
      '--live',
      'ask a running cluster, and say where its hops spend their time, beside a bare hop of as many bytes',
    )
    .option('--tokens <count>', 'with --live: of the answer', wholeNumberFlag(1, MOST_TOKENS), 128)
    .option('--json', 'one JSON object on stdout')
    .action(async (options: HopOptions) => {
      avoidMarkingPauses();
      if (options.live === true) return benchLiveHops(options, run);
      const rows = await measureHops(options.seconds);
      run.print(hopsJson(rows), options.json === true, () => hopsTable(rows));
    });
}

async function benchLiveHops(options: HopOptions, run: MeasuredRun): Promise<void> {
  const live = await measureLiveHops(await findMain(options), options.tokens, options.seconds);
  run.print(liveHopsJson(live), options.json === true, () => liveHopsTable(live));
}

function seconds(value: string): number {
  const count = Number(value);
  if (count > 0 && count <= 3600) return count;
  throw new InvalidArgumentError('Give a number of seconds up to 3600.');
}
