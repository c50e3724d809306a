import type { Command } from 'commander';
import { addMainFlags, findMain, type MainFlags } from '../../cli/client/find-main.js';
import { STATUS_TIMEOUT_MS } from '../../cli/client/ask-status.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { fetchStatus, generate } from '../../shared/transport/node-clients.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { answerRequest, collectAnswer } from '../paper/testbed.js';
import { type Datapoint, datapointOf, datapointText } from './datapoint.js';

const MOST_TOKENS = 65_536;
/** Tokens that every vocabulary has. */
const TOKEN_IDS = 64;

interface ReportFlags extends MainFlags {
  promptTokens: number;
  tokens: number;
  json: boolean;
}

/** Adds `odmoe bench report`. */
export function registerBenchReport(bench: Command, run: MeasuredRun): void {
  addMainFlags(bench.command('report'))
    .description(
      "measure a running cluster with one answer, and print the text of an issue: hardware, model, speed and loads, no machine's or person's name",
    )
    .option('--prompt-tokens <count>', 'of the prompt', wholeNumberFlag(1, MOST_TOKENS), 32)
    .option('--tokens <count>', 'of the answer', wholeNumberFlag(2, MOST_TOKENS), 128)
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText('after', '\nExample:\n  odmoe bench report > datapoint.md')
    .action(async (flags: ReportFlags) => {
      const point = await measureCluster(flags);
      run.print(snakeCaseKeys(point), flags.json, () => datapointText(point));
    });
}

async function measureCluster(flags: ReportFlags): Promise<Datapoint> {
  const { promptTokens, tokens } = flags;
  const { address, transport } = await findMain(flags);
  const promptIds = Array.from({ length: promptTokens }, (_, index) => index % TOKEN_IDS);
  const before = await fetchStatus(transport, address, STATUS_TIMEOUT_MS);
  const request = answerRequest(promptIds, tokens);
  const { finished } = await collectAnswer(generate(transport, address, request, new AbortController().signal));
  const after = await fetchStatus(transport, address, STATUS_TIMEOUT_MS);
  return datapointOf({ before, after, finished, promptTokens, tokens });
}
