import type { Command } from 'commander';

import { askStatus } from '../client/ask-status.js';
import { addMainFlags, findMain, type MainFlags } from '../client/find-main.js';
import { statusJson, statusLines } from '../output/status-report.js';
import type { StatusReply } from '../../shared/wire/messages.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

interface StatusFlags extends MainFlags {
  verbose: boolean;
  json: boolean;
}

/** `odmoe status`: shows a running cluster once. */
export function registerStatusCommand(program: Command): void {
  const command = program.command('status').description('whether a running cluster serves, its problems and its nodes');
  addMainFlags(command)
    .option('--verbose', 'all tables: devices, memory, workers, caches, links and placement', false)
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Examples:
  odmoe status
  odmoe status --main 192.168.1.10:7600
  odmoe status --json`,
    )
    .action(async (flags: StatusFlags) => {
      const status = await askStatus(await findMain(flags));
      standardOutput.write(`${flags.json ? printableJson(statusJson(status)) : statusText(status, flags.verbose)}\n`);
    });
}

function statusText(status: StatusReply, verbose: boolean): string {
  const lines = statusLines(status, { earlier: null, verbose });
  return [...lines, ...(verbose ? [] : ['', 'more: odmoe status --verbose'])].join('\n');
}
