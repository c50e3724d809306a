import { availableParallelism } from 'node:os';
import { writeFile } from 'node:fs/promises';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { snakeCaseKeys } from '../../shared/json/snake-case.js';
import { openDevice } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { codecSetting, PACK_CODECS } from '../../packs/format/pack-codec.js';
import { createProgressBar } from '../../shared/terminal/progress-bar.js';
import { measurePools, type PoolsBenchResult } from './measure-pools.js';
import { poolsPlot, poolsTable } from './pools-report.js';
import { withSyntheticPack } from './synthetic-pack.js';

interface PoolsFlags {
  codec: string;
  shards: number;
  layers: number;
  experts: number;
  topK: number;
  hidden: number;
  intermediate: number;
  storage: number[];
  budgets: number[];
  skew: number;
  warm: number;
  tokens: number;
  rounds: number;
  threads: number;
  directIo: boolean;
  seed: number;
  svg?: string;
  json: boolean;
}

/** Tokens whose activations the plan knows: a worker's record of a few answers. */
const RECORDED_TOKENS = 400;

/** `odmoe bench pools`: what a worker's cache is worth, by policy, budget, storage and routing. */
export function registerBenchPools(bench: Command): void {
  bench
    .command('pools')
    .description("measure a worker's cache: planned pools against LRU, FIFO, Marking and no cache, over memory budgets")
    .addOption(
      new Option('--codec <codec>', 'how the exponents of the synthetic pack are stored')
        .choices(PACK_CODECS)
        .default('huffman'),
    )
    .option('--shards <n>', 'chunks that a coded plane is cut into', parseWhole, 4)
    .option('--layers <n>', 'layers', parseWhole, 4)
    .option('--experts <n>', 'experts of a layer', parseWhole, 16)
    .option('--top-k <n>', 'experts of a layer that a token needs on this worker', parseWhole, 4)
    .option('--hidden <n>', 'hidden size', parseWhole, 512)
    .option('--intermediate <n>', 'intermediate size of an expert', parseWhole, 1024)
    .option('--storage <gb_s>', 'storage speeds in GB/s, as 1,2,3.5,0; 0 is unthrottled', parseNumbers, [1, 2, 3.5, 0])
    .option('--budgets <shares>', 'memory budgets as shares of all experts', parseNumbers, [0.1, 0.25, 0.5, 0.75])
    .option('--skew <s>', 'popularity in the skewed trace falls as rank to the power of minus this', Number, 1)
    .option('--warm <n>', 'tokens before measuring', parseWhole, 12)
    .option('--tokens <n>', 'tokens that are measured, more where misses are rare', parseWhole, 20)
    .option('--rounds <n>', 'runs, of which the fastest counts for each layer of each token', parseWhole, 2)
    .option('--threads <n>', 'decompression threads (0: half of the processors)', parseWhole, 0)
    .option('--direct-io', 'read past the page cache', false)
    .option('--seed <n>', 'the same seed gives the same traces', parseWhole, 1)
    .option('--svg <file>', 'write a plot')
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
A synthetic pack is written to the temporary directory and removed. Each policy has slots, loader and cache of its own; all run the
same tokens in turn. The default run takes about five minutes.

Examples:
  odmoe bench pools --svg pools.svg
  odmoe bench pools --codec fixed4 --storage 2 --budgets 0.25,0.5 --json`,
    )
    .action(async (flags: PoolsFlags) => {
      const results = await measure(flags);
      if (flags.svg !== undefined) await writeFile(flags.svg, poolsPlot(results));
      const text = flags.json
        ? JSON.stringify(snakeCaseKeys({ setting: settingOf(flags), results }))
        : poolsTable(results);
      process.stdout.write(`${text}\n`);
    });
}

async function measure(flags: PoolsFlags): Promise<PoolsBenchResult[]> {
  const { layers, experts, topK: activated, hidden, intermediate, shards } = flags;
  const codec = codecSetting(flags.codec, null);
  const bar = createProgressBar('measuring', (tokens) => `${tokens} tokens`);
  const device = openDevice({
    backend: 'cpu',
    instructionSet: 'auto',
    threads: availableParallelism(),
    budgetBytes: 0,
  });
  try {
    return await withInterrupt((signal) =>
      withSyntheticPack({ layers, experts, activated, hidden, intermediate, codec, shards }, signal, (pack) =>
        measurePools(
          device,
          pack,
          {
            traces: [
              { name: 'skewed', skew: flags.skew },
              { name: 'flat', skew: 0 },
            ],
            storageRates: flags.storage.map((rate) => rate * 1e9),
            budgetShares: flags.budgets,
            ...{ warmTokens: flags.warm, tokens: flags.tokens, rounds: flags.rounds, recordedTokens: RECORDED_TOKENS },
            ...{ decompressionThreads: flags.threads, directIo: flags.directIo, seed: flags.seed },
          },
          { signal, nowMs: () => performance.now(), onProgress: (done, total) => bar.update(done, total) },
        ),
      ),
    );
  } catch (thrown) {
    if (thrown instanceof Error && thrown.name === 'AbortError') throw new OdmoeError('CANCELLED', 'interrupted');
    throw thrown;
  } finally {
    bar.stop();
    device.dispose();
  }
}

function settingOf(flags: PoolsFlags): Omit<PoolsFlags, 'json' | 'svg'> {
  return Object.fromEntries(Object.entries(flags).filter(([key]) => key !== 'json' && key !== 'svg')) as Omit<
    PoolsFlags,
    'json' | 'svg'
  >;
}

function parseNumbers(value: string): number[] {
  const numbers = value.split(',').map(Number);
  if (numbers.every((number) => Number.isFinite(number) && number >= 0)) return numbers;
  throw new InvalidArgumentError('It must be numbers, none negative, separated by commas.');
}
