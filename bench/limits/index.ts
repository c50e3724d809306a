import type { Command } from 'commander';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { DISCOVERY_CASES } from './discovery-cases.js';
import { HostilePacks } from './hostile-pack.js';
import { HTTP_CASES } from './http-cases.js';
import type { LimitsCase } from './limits-case.js';
import { limitsJson, type LimitsRow, limitsTable } from './limits-report.js';
import { measureCase } from './measure-case.js';
import { PEER_CASES } from './peer-cases.js';
import { RPC_CASES } from './rpc-cases.js';
import { passedBounds } from './verdict.js';

const CASES: readonly LimitsCase[] = [...RPC_CASES, ...PEER_CASES, ...HTTP_CASES, ...DISCOVERY_CASES];
/** As a failed check: a bound was passed. */
const PASSED_STATUS = 1;

interface LimitsFlags {
  only?: string[];
  json: boolean;
}

/** Adds `odmoe bench limits`. */
export function registerBenchLimits(bench: Command): void {
  bench
    .command('limits')
    .description('what a hostile client or peer can make a daemon do: processor time, memory, stalls, log')
    .option('--only <names>', 'cases, or beginnings of their names, separated by commas', (list) => list.split(','))
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Each case starts daemons of its own on loopback with the demo model, and does one hostile thing to one of them. Linux alone.

  processor  of all threads, less what the daemon takes when it is asked for its health and for small answers
  memory     the most while the case ran, above that of the quiet daemon
  busy       most processor time of the daemon's event loop while one such answer was waited for: its own part of a stall
  stall      longest wait for an answer to GET /health of main, or to Node.Identify of others, each asked 5 ms after the last answer;
             "quiet": of the second before the case
  beside     longest wait for one token of main, asked by another client meanwhile

Status 1: a bound was passed (column "passed").

Cases:
${CASES.map(({ name, about }) => `  ${name.padEnd(30)}${about}`).join('\n')}

Examples:
  odmoe bench limits
  odmoe bench limits --only generate,http-messages --json`,
    )
    .action(async ({ only, json }: LimitsFlags) => {
      const rows = await withInterrupt((signal) => measureAll(chosenCases(only), signal));
      standardOutput.write(json ? `${printableJson(limitsJson(rows))}\n` : limitsTable(rows));
      if (rows.some(({ passed }) => passed.length > 0)) process.exitCode = PASSED_STATUS;
    });
}

/** Throws USAGE for a name that no case begins with. */
export function chosenCases(only: readonly string[] | undefined, cases = CASES): readonly LimitsCase[] {
  if (only === undefined) return cases;
  const unknown = only.find((word) => !cases.some(({ name }) => name.startsWith(word)));
  if (unknown !== undefined) {
    throw new OdmoeError('USAGE', `no case begins with "${unknown}": odmoe bench limits --help has their names`);
  }
  return cases.filter(({ name }) => only.some((word) => name.startsWith(word)));
}

async function measureAll(cases: readonly LimitsCase[], signal: AbortSignal): Promise<LimitsRow[]> {
  const packs = new HostilePacks();
  const rows: LimitsRow[] = [];
  try {
    for (const one of cases) {
      if (signal.aborted) throw new OdmoeError('CANCELLED', 'interrupted');
      const packPath = await packs.withTemplate(one.template, signal);
      const figures = await measureCase(one, packPath, signal);
      rows.push({ about: one, figures, passed: passedBounds(figures, one.bounds) });
    }
    return rows;
  } finally {
    await packs.dispose();
  }
}
