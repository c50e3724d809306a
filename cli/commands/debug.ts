import type { Command } from 'commander';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { CountsReply } from '../../shared/wire/messages.js';
import { noDaemonAnswers } from '../../shared/transport/rpc-errors.js';
import { formatAddress, parseAddress } from '../../shared/wire/addresses.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { transport } from '../client/process-runtime.js';
import { fetchCounts } from '../../shared/transport/node-clients.js';

const COUNTS_TIMEOUT_MS = 15_000;

async function countsOf(address: string): Promise<CountsReply['counts']> {
  try {
    return (await fetchCounts(transport, address, COUNTS_TIMEOUT_MS)).counts;
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    throw error.code === 'NO_MAIN' || error.code === 'TIMEOUT' ? noDaemonAnswers(address, error) : error;
  }
}

/** `odmoe debug`: examines one daemon. */
export function registerDebugCommand(program: Command): void {
  const debug = program.command('debug').description('look into one daemon, to find what it should have ended');
  debug
    .command('counts')
    .description('what a daemon has open: timers, listeners, channels, files, handles, entries of its collections')
    .requiredOption('--at <host:port>', 'address of the daemon, as odmoe status shows it')
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Two looks with requests in between: where nobody is served at either, the second one shows no more than the first, but for caches that
have a bound.

Example:
  odmoe debug counts --at 192.168.1.10:7600`,
    )
    .action(async ({ at, json }: { at: string; json: boolean }) => {
      const { host, port } = parseAddress(at);
      const counts = await countsOf(formatAddress(host, port));
      const byName = Object.fromEntries(counts.map(({ name, count }) => [name, count]));
      const lines = counts
        .filter(({ count }) => count > 0)
        .map(({ name, count }) => `${String(count).padStart(10)}  ${name}`);
      standardOutput.write(`${json ? printableJson(byName) : lines.join('\n')}\n`);
    });
}
