import { Option, type Command } from 'commander';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { profileFile } from '../../cli/client/simulation-flags.js';
import { type TableColumn, tableLines } from '../../cli/output/table.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { PRECISIONS } from '../../shared/settings/setting-choices.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { MOST_PROMPTS } from '../paired-clusters/draft-prompts.js';
import { SPEED_UP_TITLES, speedUpCells } from '../paired-clusters/run-paired-clusters.js';
import { type DraftBenchOptions, type DraftRow, measureDrafts } from './measure-drafts.js';

interface BenchDraftsFlags extends Omit<DraftBenchOptions, 'flags'> {
  profile?: string;
  json: boolean;
}

/** Adds `odmoe bench drafts`. */
export function registerBenchDrafts(bench: Command, run: MeasuredRun): void {
  bench
    .command('drafts')
    .description("what main's own drafts gain, by the kind of the text")
    .option('--workers <n>', 'worker nodes', wholeNumberFlag(1, 64), 2)
    .addOption(
      new Option('--shadow <precision>', 'none: router-ahead predicts')
        .choices(['none', ...PRECISIONS])
        .default('none'),
    )
    .option('--users <n>', 'users at a time', wholeNumberFlag(1, 64), 1)
    .option('--prompts <n>', 'prompts of each kind', wholeNumberFlag(1, MOST_PROMPTS), 10)
    .option('--rounds <n>', 'rounds of both clusters', wholeNumberFlag(1, 100), 3)
    .option('--profile <file>', 'emulate the device profile')
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Two demo clusters run, without drafts and with main's own as they are by default, and take turns; their answers must be equal. Kinds of texts:
repeat and reverse (words of the prompt), quote (a text that stands in the prompt), story. Tokens a second are those of decode for one user, and of
all users together, prompts included, for several.

Examples:
  odmoe bench drafts
  odmoe bench drafts --users 8
  odmoe bench drafts --profile rtx3090-testbed --workers 8`,
    )
    .action(async ({ json, profile, ...options }: BenchDraftsFlags) => {
      const flags = profile === undefined ? [] : ['--profile', profileFile(profile)];
      const rows = await withInterrupt((signal) => measureDrafts({ ...options, flags }, signal));
      run.print(snakeCaseKeys({ rows }), json, () => asText(rows));
    });
}

const COLUMNS: readonly TableColumn[] = [
  { title: 'text', align: 'left' },
  ...['users', 'tokens a pass', 'drafts a pass', 'tokens/s without', 'with drafts', ...SPEED_UP_TITLES].map(
    (title): TableColumn => ({
      title,
      align: 'right',
    }),
  ),
];

function asText(rows: readonly DraftRow[]): string {
  const cells = rows.map((row) => [
    row.kind,
    String(row.users),
    row.tokensAPass.toFixed(2),
    row.draftsAPass.toFixed(2),
    row.plainTokensPerSecond.toFixed(1),
    row.draftedTokensPerSecond.toFixed(1),
    ...speedUpCells(row),
  ]);
  return `${tableLines(COLUMNS, cells).join('\n')}\n`;
}
