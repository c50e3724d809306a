import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Command } from 'commander';
import { DemoCluster } from '../../cli/demo/demo-cluster.js';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { runtime, transport } from '../../cli/client/process-runtime.js';
import { tableLines } from '../../cli/output/table.js';
import { packForServing } from '../../packs/pack-for-serving.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { generate } from '../../shared/transport/node-clients.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { answerRequest } from '../../cli/client/measured-request.js';

interface PrefixStoreFlags {
  model?: string;
  workers: number;
  prompt: number;
  json?: boolean;
}

/** One prompt, asked of a main that has just started. */
interface AskedPrompt {
  readonly main: string;
  readonly ttftMs: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

const START_TIMEOUT_MS = 180_000;
const ANSWER_TOKENS = 4;
const VOCABULARY = 250;

/** Adds `odmoe bench prefix-store`. */
export function registerBenchPrefixStore(bench: Command, run: MeasuredRun): void {
  bench
    .command('prefix-store')
    .description('time to the first token of a long prompt after a restart of main, with and without main.prefix_store')
    .option('--model <path>', 'a pack or a checkpoint (default: the demo model)')
    .option('--workers <count>', 'of the cluster', wholeNumberFlag(1, 64), 2)
    .option('--prompt <tokens>', 'of the prompt', wholeNumberFlag(64, 1_000_000), 2000)
    .option('--json', 'one JSON object on stdout')
    .addHelpText('after', '\nExample:\n  odmoe bench prefix-store --prompt 4000')
    .action(async (flags: PrefixStoreFlags) => {
      const asked = await withInterrupt((signal) => measure(flags, signal));
      run.print(snakeCaseKeys({ summary: asked }), flags.json === true, () => asText(asked));
    });
}

/** The same prompt of three mains, one after another: the second one has the store of the first, the third one has none. */
async function measure(flags: PrefixStoreFlags, signal: AbortSignal): Promise<AskedPrompt[]> {
  const { model = join(packageRoot(), 'models', 'demo'), workers, prompt } = flags;
  const packPath = await packForServing(model, null, runtime, () => undefined, signal);
  const home = await mkdtemp(join(tmpdir(), 'odmoe-prefix-store-'));
  // The daemons inherit it: the store of this run goes with it.
  process.env['XDG_STATE_HOME'] = home;
  const setUp = { packPath, workers, prompt };
  try {
    const first = await askOnce('first start', '1 TiB', setUp, signal);
    const stored = await askOnce('started again, with the store', '1 TiB', setUp, signal);
    const without = await askOnce('started again, without', '0', setUp, signal);
    for (const { tokenIds } of [stored, without])
      if (!isDeepStrictEqual(tokenIds, first.tokenIds))
        throw new OdmoeError('INTERNAL', 'main answered with other tokens after a restart');
    return [first.asked, stored.asked, without.asked];
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

async function askOnce(
  main: string,
  size: string,
  { packPath, workers, prompt }: { packPath: string; workers: number; prompt: number },
  signal: AbortSignal,
): Promise<{ asked: AskedPrompt; tokenIds: number[] }> {
  const cluster = new DemoCluster({
    packPath,
    workers,
    shadow: 'none',
    groupSize: 'auto',
    alignTokenPeriod: 1,
    alignKeyValuePeriod: 1,
    startTimeoutMs: START_TIMEOUT_MS,
    cluster: `prefix-store-${process.pid}`,
    flags: { main: ['--prefix-store', size, '--max-context', String(prompt + ANSWER_TOKENS)] },
  });
  try {
    await cluster.start(signal);
    return await cluster.whileMainRuns(ask(main, cluster.mainAddress, prompt, signal));
  } finally {
    await cluster.stop();
  }
}

async function ask(
  main: string,
  address: string,
  prompt: number,
  signal: AbortSignal,
): Promise<{ asked: AskedPrompt; tokenIds: number[] }> {
  const promptIds = Array.from({ length: prompt }, (_, index) => 3 + ((index * 37) % VOCABULARY));
  const begunMs = runtime.nowMs();
  const tokenIds: number[] = [];
  let [ttftMs, cachedTokens] = [0, 0];
  for await (const reply of generate(transport, address, answerRequest(promptIds, ANSWER_TOKENS), signal)) {
    if (reply.kind === 'finished') cachedTokens = reply.finished.cachedTokens;
    if (reply.kind !== 'token') continue;
    if (tokenIds.length === 0) ttftMs = runtime.nowMs() - begunMs;
    tokenIds.push(reply.token.tokenId);
  }
  return { asked: { main, ttftMs, promptTokens: prompt, cachedTokens }, tokenIds };
}

function asText(asked: readonly AskedPrompt[]): string {
  const right = (title: string) => ({ title, align: 'right' }) as const;
  const rows = asked.map(({ main, ttftMs, promptTokens, cachedTokens }) => [
    main,
    ttftMs.toFixed(0),
    String(promptTokens),
    String(cachedTokens),
  ]);
  const columns = [
    { title: 'main', align: 'left' } as const,
    right('first token, ms'),
    right('prompt'),
    right('not run'),
  ];
  return `${tableLines(columns, rows).join('\n')}\n`;
}
