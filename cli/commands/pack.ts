import type { Command } from 'commander';
import { NATIVE_PACKING_TOOLS } from '../../engine/packing/native-tools.js';
import { DEFAULT_CODEC, DEFAULT_SHARDS, packCheckpoint } from '../../engine/packing/pack-checkpoint.js';
import type { PackOutcome } from '../../engine/packing/pack-outcome.js';
import { CODEC_LEVELS, codecSetting, PACK_CODECS } from '../../shared/pack/pack-codec.js';
import { parseWhole } from '../generation-flags.js';
import { withInterrupt } from '../interrupt.js';
import { createProgressBar } from '../../shared/terminal/progress-bar.js';
import { snakeCaseKeys } from '../output/snake-case.js';
import { formatBytes, formatDuration } from '../../shared/terminal/units.js';

interface PackFlags {
  codec: string;
  level?: number;
  shards: number;
  name?: string;
  json: boolean;
}

/** `odmoe pack`: a Hugging Face checkpoint becomes what the daemons serve from. */
export function registerPackCommand(program: Command): void {
  program
    .command('pack')
    .description('convert a Hugging Face checkpoint into a pack, which workers load experts from')
    .argument('<checkpoint>', 'directory with config.json and *.safetensors')
    .argument('<output>', 'directory for the pack; new, empty, or with an unfinished pack of the same checkpoint')
    .option('--codec <name>', `how exponents are stored: ${PACK_CODECS.join(', ')}`, DEFAULT_CODEC.codec)
    .option('--level <n>', `level of the codec: ${levelRanges()}`, parseWhole)
    .option('--shards <n>', 'chunks that the exponents of a matrix are cut into', parseWhole, DEFAULT_SHARDS)
    .option('--name <name>', "name that the pack records and the cluster's nodes compare (default: the checkpoint's)")
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
Packing loses nothing: every weight comes back bit for bit. It needs little memory, whatever the size of the model, and about
the checkpoint's size on the disk. After an interruption run the same command again: it continues with the files that were not
finished. Until it is done the directory cannot be served by mistake. The same checkpoint gives the same pack, so
machines may each pack their own copy: under the same name and with the same odmoe the digests agree.

Examples:
  odmoe pack ~/models/Mixtral-8x7B-v0.1 /data/mixtral-pack
  odmoe pack models/demo /tmp/demo-pack --shards 2 --json`,
    )
    .action(async (checkpoint: string, output: string, flags: PackFlags) => pack(checkpoint, output, flags));
}

/** "zstd 1 to 22 (9), lz4hc ...". */
function levelRanges(): string {
  const ranges = PACK_CODECS.flatMap((codec) => {
    const range = CODEC_LEVELS[codec];
    return range === null ? [] : `${codec} ${range.lowest} to ${range.highest} (default ${range.usual})`;
  });
  return `${ranges.join(', ')}; the others have none`;
}

async function pack(checkpoint: string, output: string, flags: PackFlags): Promise<void> {
  const startedMs = performance.now();
  const bar = createProgressBar('packing');
  let outcome: PackOutcome;
  try {
    outcome = await withInterrupt((signal) =>
      packCheckpoint(
        checkpoint,
        output,
        {
          codec: codecSetting(flags.codec, flags.level ?? null),
          shards: flags.shards,
          name: flags.name ?? null,
          onDamagedPack: 'refuse',
          onProgress: (done, total) => bar.update(done, total),
          signal,
        },
        NATIVE_PACKING_TOOLS,
      ),
    );
  } finally {
    bar.stop();
  }
  const elapsedMs = Math.round(performance.now() - startedMs);
  if (flags.json) process.stdout.write(`${JSON.stringify(snakeCaseKeys({ ...outcome, elapsedMs }))}\n`);
  else process.stdout.write(`${packSummary(outcome, elapsedMs).join('\n')}\n`);
}

function packSummary(outcome: PackOutcome, elapsedMs: number): string[] {
  const { directory, name, digest, sourceBytes, packBytes, files, resumedFiles } = outcome;
  const resumed = resumedFiles > 0 && !outcome.alreadyWhole ? `, ${resumedFiles} of them from an earlier run` : '';
  const first = outcome.alreadyWhole
    ? `${directory} already holds the whole pack of this checkpoint; its weights were compared in ${formatDuration(elapsedMs)}`
    : `packed ${formatBytes(sourceBytes)} of weights into ${directory} in ${formatDuration(elapsedMs)}`;
  return [first, `  ${name}: ${files} files${resumed}, ${formatBytes(packBytes)}`, `  digest ${digest}`];
}
