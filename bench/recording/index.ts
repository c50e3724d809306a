import type { Command } from 'commander';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { type TableColumn, tableLines } from '../../cli/output/table.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { MOST_PROMPTS } from '../paired-clusters/draft-prompts.js';
import { SPEED_UP_TITLES, speedUpCells } from '../paired-clusters/run-paired-clusters.js';
import { measureRecording, type RecordingBenchOptions, type RecordingFigures } from './measure-recording.js';

const TITLES = ['users', 'tokens/s', 'while recording', ...SPEED_UP_TITLES, 'recorded tokens'];

/** Adds `odmoe bench recording`. */
export function registerBenchRecording(bench: Command, run: MeasuredRun): void {
  bench
    .command('recording')
    .description('what it costs that main records its states for "odmoe fit --record" (main.record_tokens)')
    .option('--workers <n>', 'worker nodes', wholeNumberFlag(1, 64), 2)
    .option('--users <n>', 'users at a time', wholeNumberFlag(1, 64), 1)
    .option('--prompts <n>', 'prompts of a round', wholeNumberFlag(1, MOST_PROMPTS), 10)
    .option('--rounds <n>', 'rounds of both clusters', wholeNumberFlag(1, 100), 5)
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Two demo clusters run, one of which records, and tell stories in turns; their answers must be equal. Tokens a second are those of decode for one user, and
of all users together, prompts included, for several.`,
    )
    .action(async ({ json, ...options }: RecordingBenchOptions & { json: boolean }) => {
      const figures = await withInterrupt((signal) => measureRecording(options, signal));
      run.print(snakeCaseKeys({ ...figures }), json, () => asText(figures));
    });
}

function asText(figures: RecordingFigures): string {
  const { users, plainTokensPerSecond, recordingTokensPerSecond, recordedTokens } = figures;
  const columns = TITLES.map((title): TableColumn => ({ title, align: 'right' }));
  const speeds = [plainTokensPerSecond, recordingTokensPerSecond].map((speed) => speed.toFixed(1));
  const cells = [String(users), ...speeds, ...speedUpCells(figures), String(recordedTokens)];
  return `${tableLines(columns, [cells]).join('\n')}\n`;
}
