import type { Command } from 'commander';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { generate } from '../../shared/transport/node-clients.js';
import { askStatus } from '../client/ask-status.js';
import { addMainFlags, findMain, type MainFlags } from '../client/find-main.js';
import { answerRequest, collectAnswer } from '../client/measured-request.js';
import { type Datapoint, datapointOf, datapointText } from '../output/datapoint.js';

const MOST_TOKENS = 65_536;
/** Tokens that every vocabulary has. */
const TOKEN_IDS = 64;

interface ReportFlags extends MainFlags {
  promptTokens: number;
  tokens: number;
  json: boolean;
}

/** Makes the program `odmoe bench report`. */
export function registerBenchReport(program: Command): void {
  addMainFlags(program)
    .description(
      "measure a running cluster with one answer, and print the text of an issue: hardware, model, speed and loads, no machine's or person's name",
    )
    .option('--prompt-tokens <count>', 'of the prompt', wholeNumberFlag(1, MOST_TOKENS), 32)
    .option('--tokens <count>', 'of the answer', wholeNumberFlag(2, MOST_TOKENS), 128)
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText('after', '\nExample:\n  odmoe bench report > datapoint.md')
    .action(async (flags: ReportFlags) => {
      const point = await measureCluster(flags);
      standardOutput.write(flags.json ? `${printableJson(snakeCaseKeys(point))}\n` : datapointText(point));
    });
}

async function measureCluster(flags: ReportFlags): Promise<Datapoint> {
  const { promptTokens, tokens } = flags;
  const main = await findMain(flags);
  const promptIds = Array.from({ length: promptTokens }, (_, index) => index % TOKEN_IDS);
  const before = await askStatus(main);
  const request = answerRequest(promptIds, tokens);
  const answer = generate(main.transport, main.address, request, new AbortController().signal);
  const { finished } = await collectAnswer(answer);
  const after = await askStatus(main);
  return datapointOf({ before, after, finished, promptTokens, tokens });
}
