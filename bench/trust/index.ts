import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { runtime } from '../../cli/client/process-runtime.js';
import { tableLines } from '../../cli/output/table.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { compareTrust, type Spread, type TrustComparison, type TrustRound } from './compare-trust.js';
import { TrustClusters, type TrustSetUp } from './trust-clusters.js';

interface TrustFlags {
  model?: string;
  workers: number;
  tokens: number;
  rounds: number;
  starts: number;
  json?: boolean;
}

/** Adds `odmoe bench trust`. */
export function registerBenchTrust(bench: Command, run: MeasuredRun): void {
  bench
    .command('trust')
    .description(
      "what an authority costs: a token's time in a cluster whose daemons speak TLS, beside one in plaintext on loopback",
    )
    .option('--model <path>', 'a pack or a checkpoint (default: the demo model)')
    .option('--workers <count>', 'of each cluster', wholeNumberFlag(1, 64), 2)
    .option('--tokens <count>', 'of each answer', wholeNumberFlag(2, 65_536), 64)
    .option('--rounds <count>', 'of each start; one answer of each cluster', wholeNumberFlag(1, 10_000), 10)
    .option('--starts <count>', 'of both clusters, beginning with each in turn', wholeNumberFlag(1, 1000), 4)
    .option('--json', 'one JSON object on stdout')
    .addHelpText(
      'after',
      `
Both clusters are processes on this machine. They run side by side and answer in turns; every second round begins with the other one, and so does
every second start: of two equal clusters the one that started later can be slower. An even number of --starts takes this out.
A token of the demo model takes a few milliseconds, of which messages are a larger part than in any real cluster.

Example:
  odmoe bench synth /tmp/random --intermediate 1024 --vocab 4096
  odmoe bench trust --model /tmp/random`,
    )
    .action(async (flags: TrustFlags) => {
      const comparison = await withInterrupt((signal) => measure(flags, signal));
      run.print(asJson(comparison), flags.json === true, () => asText(comparison));
    });
}

async function measure(flags: TrustFlags, signal: AbortSignal): Promise<TrustComparison> {
  const { model = join(packageRoot(), 'models', 'demo'), workers, tokens } = flags;
  const packPath = await packForServing(model, null, runtime, () => undefined, signal);
  const starts: TrustRound[][] = [];
  for (let start = 0; start < flags.starts; start += 1)
    starts.push(await measureStart({ packPath, workers, tokens, isTlsFirst: start % 2 === 1 }, flags.rounds, signal));
  return compareTrust(starts);
}

async function measureStart(setUp: TrustSetUp, rounds: number, signal: AbortSignal): Promise<TrustRound[]> {
  const home = await mkdtemp(join(tmpdir(), 'odmoe-trust-'));
  // The daemons inherit it: authority and keys of this start go with it, and no cluster of the user is touched.
  process.env['XDG_STATE_HOME'] = home;
  let clusters: TrustClusters | null = null;
  try {
    clusters = await TrustClusters.start(setUp, signal);
    return await roundsOf(clusters, rounds, signal);
  } finally {
    await clusters?.stop();
    await rm(home, { recursive: true, force: true });
  }
}

async function roundsOf(clusters: TrustClusters, count: number, signal: AbortSignal): Promise<TrustRound[]> {
  // The first answers find nothing warm.
  await clusters.round(false, signal);
  const rounds: TrustRound[] = [];
  for (let round = 0; round < count; round += 1) rounds.push(await clusters.round(round % 2 === 1, signal));
  return rounds;
}

/** `summary` has the rows of a table. */
function asJson({ plaintextMs, tlsMs, ratio, ...others }: TrustComparison): unknown {
  const summary = [
    { name: 'plaintext, ms', ...plaintextMs },
    { name: 'TLS, ms', ...tlsMs },
    { name: 'TLS / plaintext', ...ratio },
  ];
  return snakeCaseKeys({ summary, ...others });
}

function asText({ plaintextMs, tlsMs, ratio, starts }: TrustComparison): string {
  const right = (title: string) => ({ title, align: 'right' }) as const;
  const line = (name: string, { middle, lowest, highest }: Spread, decimals: number): string[] => [
    name,
    ...[middle, lowest, highest].map((value) => value.toFixed(decimals)),
  ];
  const table = tableLines(
    [{ title: 'a token', align: 'left' }, right('middle'), right('lowest'), right('highest')],
    [line('plaintext, ms', plaintextMs, 2), line('TLS, ms', tlsMs, 2), line('TLS / plaintext', ratio, 3)],
  );
  const note = `(the ratio is of ${starts.length} starts: each counts by the median of its ${starts[0]?.length ?? 0} rounds)`;
  return `${table.join('\n')}\n${note}\n`;
}
