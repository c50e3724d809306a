import type { Command } from 'commander';

import { askStatus } from '../client/ask-status.js';
import { addMainFlags, findMain, type MainFlags } from '../client/find-main.js';
import { statusJson, statusLines } from '../output/status-report.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

/** `odmoe status`: shows a running cluster once. */
export function registerStatusCommand(program: Command): void {
  const command = program.command('status').description("a running cluster's nodes, memory, placement and problems");
  addMainFlags(command)
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Examples:
  odmoe status
  odmoe status --main 192.168.1.10:7600
  odmoe status --json`,
    )
    .action(async (flags: MainFlags & { json: boolean }) => {
      const status = await askStatus(await findMain(flags));
      const text = flags.json ? printableJson(statusJson(status)) : statusLines(status, null).join('\n');
      standardOutput.write(`${text}\n`);
    });
}
