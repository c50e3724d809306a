import { InvalidArgumentError, type Command } from 'commander';
import { availableParallelism, tmpdir } from 'node:os';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { tableLines } from '../../cli/output/table.js';
import { cudaStatus, openDevice } from '../../native/index.js';
import { codecSetting, isPackCodec, PACK_CODECS, type CodecSetting } from '../../packs/format/pack-codec.js';
import { openServedPack } from '../../packs/open-served-pack.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type LoadedPack, type LoadSetting, type LoadStage, measureLoadStages } from './measure-load.js';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { packCheckpoint } from '../../packs/packing/pack-checkpoint.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { synthesizeCheckpoint } from '../synth/synthesize-checkpoint.js';
import type { MeasuredRun } from '../history/measured-run.js';

const MOST_READS_AT_ONCE = 16;

interface LoadFlags {
  model?: string;
  codec: string[];
  hidden: number;
  intermediate: number;
  experts: number;
  rounds: number;
  milliseconds: number;
  depth: number;
  threads: number;
  json: boolean;
}

/** Adds `odmoe bench load`. */
export function registerBenchLoad(bench: Command, run: MeasuredRun): void {
  bench
    .command('load')
    .description('each stage of loading experts beside raw reads, memcpy and decoding alone, in one run')
    .option('--model <pack>', 'a pack whose experts are loaded (without it: random ones, one pack a codec)')
    .option('--codec <list>', `of ${PACK_CODECS.join(', ')}`, codecs, ['raw', 'huffman', 'fixed4'])
    .option('--hidden <n>', 'hidden size of the random experts', wholeNumberFlag(64, 16_384), 2048)
    .option('--intermediate <n>', 'their intermediate size', wholeNumberFlag(64, 65_536), 5632)
    .option('--experts <n>', 'how many there are', wholeNumberFlag(1, 64), 4)
    .option('--rounds <n>', 'rounds over all stages; the fastest counts', wholeNumberFlag(1, 1000), 5)
    .option('--milliseconds <n>', 'of one measurement', wholeNumberFlag(1, 60_000), 300)
    .option('--depth <n>', 'reads in flight where there are several', wholeNumberFlag(2, MOST_READS_AT_ONCE), 8)
    .option('--threads <n>', 'decompression threads (0: half of the processors)', wholeNumberFlag(0, 64), 0)
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
Cached reads come from the page cache, direct ones from the storage. Loads count the bytes read, beside the fastest raw reads of their
kind of the same file, or where experts are held in host memory the stored bytes, beside copying. Stages take turns; a share is the
median of the rounds, within a round; above 100 % the storage changed meanwhile. Of a pack the experts of one file are loaded. The random packs are written to the temporary directory (TMPDIR) and removed. The
energy of the whole run stands below the table and in --json, where this machine has counters of it.

Examples:
  odmoe bench load
  odmoe bench load --model ~/packs/mixtral --depth 16 --json`,
    )
    .action((flags: LoadFlags) => benchLoad(flags, run));
}

async function benchLoad(flags: LoadFlags, run: MeasuredRun): Promise<void> {
  const { rounds, milliseconds, depth } = flags;
  const setting: LoadSetting = { rounds, milliseconds, depth, decompressionThreads: flags.threads };
  const bar = createProgressBar('measuring', (stages) => `${stages} measurements`);
  const threads = availableParallelism();
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads, budgetBytes: 0 });
  try {
    const stages = await withPacks(flags, (packs) =>
      run.withEnergy(() => measureLoadStages(device, packs, setting, (done, total) => bar.update(done, total))),
    );
    bar.stop();
    run.print({ ...asJson(stages, setting), energy: run.energy }, flags.json, () => asTable(stages));
  } finally {
    bar.stop();
    device.dispose();
  }
}

async function withPacks<Result>(
  { model, codec, hidden, intermediate, experts }: LoadFlags,
  use: (packs: LoadedPack[]) => Promise<Result>,
): Promise<Result> {
  if (model !== undefined) {
    const pack = await openServedPack(model);
    const [exponents] = pack.expert(0, 0).gate.chunks.filter(({ plane }) => plane === 0);
    return use([{ codec: exponents?.codec ?? 'raw', pack }]);
  }
  const { signal } = new AbortController();
  const makeRest = (rest: readonly string[], packs: LoadedPack[]): Promise<Result> => {
    const [name, ...others] = rest;
    if (name === undefined) return use(packs);
    if (!isPackCodec(name)) throw new OdmoeError('INTERNAL', `${name} is no codec`);
    const shape = { layers: 1, experts, activated: 1, hidden, intermediate, shards: 4 };
    return withSyntheticPack({ ...shape, codec: codecSetting(name, null) }, signal, (pack) =>
      makeRest(others, [...packs, { codec: name, pack }]),
    );
  };
  return makeRest(codec, []);
}

/** Names the tool that measures a GPU's pinned copies, if there is a GPU. */
function pinnedCopies(): string {
  const { devices } = cudaStatus();
  return devices.length === 0 ? 'none: there is no GPU' : 'by build/Release/odmoe_cuda_bench';
}

function asJson(stages: readonly LoadStage[], { depth, rounds, milliseconds }: LoadSetting): object {
  return {
    depth,
    rounds,
    milliseconds,
    pinned_copies: pinnedCopies(),
    stages: stages.map(({ stage, counted, bytesPerS, limit }) => ({
      stage,
      counted,
      gb_s: bytesPerS / 1e9,
      limit: limit?.stage ?? null,
      share_of_limit: limit?.share ?? null,
    })),
  };
}

function asTable(stages: readonly LoadStage[]): string {
  const columns = [
    { title: 'stage', align: 'left' as const },
    { title: 'GB/s', align: 'right' as const },
    { title: 'of', align: 'left' as const },
    { title: 'of its limit', align: 'right' as const },
    { title: 'limit', align: 'left' as const },
  ];
  const cells = stages.map(({ stage, counted, bytesPerS, limit }) => [
    stage,
    (bytesPerS / 1e9).toFixed(2),
    counted,
    limit === null ? '' : `${(100 * limit.share).toFixed(0)} %`,
    limit?.stage ?? '',
  ]);
  return `${tableLines(columns, cells).join('\n')}\npinned copies: ${pinnedCopies()}\n`;
}

function codecs(text: string): string[] {
  const names = text.split(',').map((name) => {
    const codec = name.trim();
    if (isPackCodec(codec)) return codec;
    throw new InvalidArgumentError(`expected a list of ${PACK_CODECS.join(', ')}`);
  });
  return [...new Set(names)];
}

/** A pack with experts of 3 x hidden x intermediate weights; all other parts of the model are as small as possible. */
interface SyntheticPackSetting {
  layers: number;
  experts: number;
  activated: number;
  hidden: number;
  intermediate: number;
  codec: CodecSetting;
  shards: number;
}

/** Makes a pack of random experts in a temporary directory, and removes it after `use`. */
export async function withSyntheticPack<Result>(
  setting: SyntheticPackSetting,
  signal: AbortSignal,
  use: (pack: Pack) => Promise<Result>,
): Promise<Result> {
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-bench-'));
  try {
    const checkpoint = join(directory, 'checkpoint');
    const shape = {
      hidden_size: setting.hidden,
      intermediate_size: setting.intermediate,
      vocab_size: 32,
      head_dim: 8,
      num_hidden_layers: setting.layers,
      num_local_experts: setting.experts,
      num_attention_heads: 1,
      num_experts_per_tok: setting.activated,
      num_key_value_heads: 1,
      max_position_embeddings: 64,
    };
    await synthesizeCheckpoint(checkpoint, shape, { dtype: 'BF16', seed: 1, signal });
    const output = join(directory, 'pack');
    const { codec, shards } = setting;
    await packCheckpoint(
      checkpoint,
      output,
      { codec, shards, name: 'synthetic', onDamagedPack: 'refuse', signal },
      NATIVE_PACKING_TOOLS,
    );
    await rm(checkpoint, { recursive: true });
    return await use(await openPack(output));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
