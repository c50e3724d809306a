import { realpath } from 'node:fs/promises';
import { resolve } from 'node:path';
import { type Command, Option } from 'commander';
import { calibrate } from '../../engine/planning/calibrate.js';
import { packCompression } from '../../packs/pack-compression.js';
import { checkTokenizer } from '../../packs/packing/check-tokenizer.js';
import { earlierCodec } from '../../packs/packing/earlier-codec.js';
import { type MeasuredChoice, measureAndChoose } from '../../packs/packing/measure-codecs.js';
import { NATIVE_MEASURING_TOOLS, NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { DEFAULT_CODEC, DEFAULT_SHARDS, packCheckpoint } from '../../packs/packing/pack-checkpoint.js';
import type { PackOutcome } from '../../packs/packing/pack-outcome.js';
import { addSlices, addThresholds, type SliceOutcome } from '../../packs/slices/add-slices.js';
import { SLICE_PAIRS, splitOfPair } from '../../packs/slices/slice-pair.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { FormRecall } from '../../shared/decisions/slices/choose-shadow-form.js';
import type { SlicedSplit } from '../../shared/model/tensor-source.js';
import { openSourceCheckpoint } from '../../packs/gguf/open-source-checkpoint.js';
import {
  CODEC_LEVELS,
  type CodecSetting,
  codecSetting,
  describeCodec,
  PACK_CODECS,
} from '../../packs/format/pack-codec.js';
import { isSlicesOnly } from '../../packs/format/manifest.js';
import { isPackDirectory, openAnyPack, type Pack } from '../../packs/format/open-pack.js';
import { readShadowRecall, writeShadowRecall } from '../../packs/shadow-recall-file.js';
import { parseWhole } from '../client/generation-flags.js';
import { withInterrupt } from '../client/interrupt.js';
import { codecChoiceLines, codecChoiceObject } from '../output/codec-choice-report.js';
import { type Measurements, measurementLines } from '../output/measurements-report.js';
import { slicedLines } from '../output/slices-report.js';
import { createProgressBar, describeBytes, type ProgressBar } from '../../shared/base/text/progress-bar.js';
import { paddingLine } from '../output/padding-line.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { availableMemoryBytes } from '../../shared/base/runtime/available-memory.js';
import { formatBytes, formatDuration } from '../../shared/base/text/units.js';
import { runtime } from '../client/process-runtime.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

interface PackFlags {
  codec: string;
  level?: number;
  shards: number;
  name?: string;
  longContext: boolean;
  consume: boolean;
  slices?: string;
  only: boolean;
  recall: boolean;
  json: boolean;
}

/** The parts of a command that add to a pack. */
interface Additions {
  /** Null: no slices were asked for. */
  slices: SliceOutcome | null;
  /** Null: nothing was left to measure. */
  measured: Measurements | null;
}

const NOTHING_ADDED: Additions = { slices: null, measured: null };

const AUTO = 'auto';

/** Most names of skipped tensors; `odmoe inspect` shows more. */
const LEFT_OUT_NAMED = 3;

/** `odmoe pack`: converts a Hugging Face checkpoint into a pack, which the daemons serve. */
export function registerPackCommand(program: Command): void {
  program
    .command('pack')
    .description('convert a Hugging Face checkpoint into a pack, which workers load experts from')
    .argument(
      '<checkpoint>',
      'directory with config.json and *.safetensors, or a GGUF file; with --slices or --recall also a pack, the same as <output>',
    )
    .argument('<output>', 'directory for the pack; new, empty, or with an unfinished pack of the same checkpoint')
    .addOption(
      new Option('--codec <name>', 'how the exponents of experts are stored')
        .choices([...PACK_CODECS, AUTO])
        .default(DEFAULT_CODEC.codec),
    )
    .option('--level <n>', `level of the codec: ${levelRanges()}`, parseWhole)
    .option('--shards <n>', 'chunks that the exponents of a matrix are cut into', parseWhole, DEFAULT_SHARDS)
    .option('--name <name>', "name that the pack records and the cluster's nodes compare (default: the checkpoint's)")
    .option('--long-context', 'take the long factors of ropes that change with the length (longrope)', false)
    .option('--consume', "delete each of the checkpoint's weight files when what is made from it is verified", false)
    .option(
      '--slices <bits>',
      `add slices of the experts: bits of a weight and of its upper slice (${SLICE_PAIRS.join('; ')})`,
    )
    .option('--recall', 'measure how well a shadow of each form predicts, for "shadow.precision: auto"', false)
    .option('--only', "with --slices: without the experts' lossless parts; exact answers need those", false)
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
Packing loses nothing: every weight comes back bit for bit, whatever the codec. It needs little memory, whatever the size of the
model. After an interruption run the same command again: it continues with the files that were not finished. Until it is done the
directory cannot be served by mistake.

--consume is for a disk that does not hold checkpoint and pack at once: each weight file (*.safetensors) of the checkpoint is deleted
as soon as every file of the pack that is made from it is on the disk, has been read back and compared. Of a link, as in the cache of
Hugging Face, the file that it leads to is deleted too. Nothing else is deleted; whether all of it may be is checked first; and what
is interrupted, however, goes on with the same command.

--slices 8,4 adds the experts in 8 bits a weight, whose upper 4 bits are usable without the lower ones. They lie in files of their own
beside the experts' lossless parts, of which no byte changes. A pack that is there already gets slices by the same command, or with
the pack as <checkpoint> and <output>; where it has them, their checksums are compared and damaged files are made again. A pack
holds slices of one pair of bits. With --only it holds no lossless parts of experts, so it cannot be served for exact answers.
Then a short text runs through the model, which measures the thresholds for --quality 'sliced(8,4,critical=Q)'. That needs memory for
all weights but the experts; where there is too little, the same command measures them later, on a machine with more.

--recall runs that text once more for each form in which a shadow may hold the model, and writes down which share of the experts it
predicts. "shadow.precision: auto" then takes the form that predicts best in the memory of its box. A pack that is there already is
measured by the same command.

--codec auto measures every codec on a sample of the checkpoint, and the storage that the checkpoint lies on, and takes the one
that an expert is loaded fastest with on this machine. Run it on a machine that is like the workers. raw, fixed4 and huffman give
the same pack wherever the checkpoint is packed under the same name with the same odmoe; zstd and lz4hc only with the same versions
of their libraries, so pack once and copy.

Examples:
  odmoe pack ~/models/Mixtral-8x7B-v0.1 /data/mixtral-pack
  odmoe pack ~/models/Mixtral-8x7B-v0.1 /data/mixtral-pack --codec auto
  odmoe pack ~/models/gpt-oss-120b /data/gpt-oss-pack --consume
  odmoe pack /data/mixtral-pack /data/mixtral-pack --slices 8,4
  odmoe pack models/demo /tmp/demo-pack --codec zstd --level 19 --shards 2 --json`,
    )
    .action(async (checkpoint: string, output: string, flags: PackFlags) => pack(checkpoint, output, flags));
}

/** For example "zstd 1 to 22 (default 1), ...". */
function levelRanges(): string {
  const ranges = PACK_CODECS.flatMap((codec) => {
    const range = CODEC_LEVELS[codec];
    return range === null ? [] : `${codec} ${range.lowest} to ${range.highest} (default ${range.usual})`;
  });
  return `${ranges.join(', ')}; the others have none`;
}

async function pack(checkpoint: string, output: string, flags: PackFlags): Promise<void> {
  const startedMs = runtime.nowMs();
  const split = flags.slices === undefined ? null : splitOfPair(flags.slices);
  if (flags.only && split === null)
    throw new OdmoeError('USAGE', '--only: nothing would be left of the experts; add --slices');
  const { packed, slices, measured } = await withInterrupt(async (signal) => {
    const adds = split !== null || flags.recall;
    const isPack = adds && !flags.only && (await isPackDirectory(checkpoint));
    if (isPack) await requireSameDirectory(checkpoint, output);
    const warning = await checkTokenizer(checkpoint);
    if (warning !== null) warn(warning);
    const packed = isPack ? null : await packWithProgress(checkpoint, output, flags, signal);
    const added = adds ? await addWithProgress(checkpoint, output, split, flags, signal) : NOTHING_ADDED;
    return { packed, ...added };
  });
  const elapsedMs = Math.round(runtime.nowMs() - startedMs);
  if (flags.json) {
    const codecChoice = packed === null || packed.choice === null ? null : codecChoiceObject(packed.choice);
    const result = { ...packed?.outcome, elapsedMs, codecChoice };
    const object = {
      ...result,
      ...(slices === null ? {} : { slices }),
      ...(slices === null && !flags.recall ? {} : { measured }),
    };
    standardOutput.write(`${printableJson(snakeCaseKeys(object))}\n`);
    return;
  }
  const again = commandAgain(checkpoint, output, flags);
  const lines = packed === null ? [`${output}: a pack`] : await packSummary(packed.outcome, elapsedMs);
  if (slices !== null) lines.push(...slicedLines(slices));
  if (measured !== null) lines.push(...measurementLines(measured, again));
  standardOutput.write(`${lines.join('\n')}\n`);
}

function warn(warning: string): void {
  standardError.write(`odmoe: ${warning}\n`);
}

/** @throws USAGE unless slices are to be added to the pack that they are made from */
async function requireSameDirectory(checkpoint: string, output: string): Promise<void> {
  const [from, to] = await Promise.all(
    [checkpoint, output].map(async (path) => realpath(path).catch(() => resolve(path))),
  );
  if (from === to) return;
  throw new OdmoeError(
    'USAGE',
    `${checkpoint}: is a pack; it is added to where it is: give it as the output too, or give the checkpoint that it was made from`,
  );
}

async function addWithProgress(
  checkpoint: string,
  output: string,
  split: SlicedSplit | null,
  { only, longContext, recall }: PackFlags,
  signal: AbortSignal,
): Promise<Additions> {
  const source = only ? { checkpoint: await openSourceCheckpoint(checkpoint, { longContext }) } : {};
  const slices =
    split === null
      ? null
      : await withBar('slicing', describeBytes, (onProgress) =>
          addSlices(output, split, { ...source, onProgress, signal }, NATIVE_SLICING_TOOLS),
        );
  const pack = await openAnyPack(output);
  const lacksTheta = slices?.theta === null;
  const withRecall = recall && (await measuredRecall(pack)) === null;
  if (!lacksTheta && !withRecall) return { slices, measured: null };
  if (isSlicesOnly(pack.manifest) && source.checkpoint === undefined) {
    throw new OdmoeError(
      'USAGE',
      `${output}: holds slices only, and lossless experts are needed to measure: give the checkpoint that it was made from, and --only`,
    );
  }
  const measured = await withBar(
    'measuring',
    (done, all) => `${done} of ${all ?? '?'}`,
    (onProgress) => {
      const setting = { budgetBytes: availableMemoryBytes(), signal, onProgress, withRecall };
      return calibrate(source.checkpoint ?? pack, setting);
    },
  );
  if ('problem' in measured) return { slices, measured };
  if (measured.recall !== null) await writeShadowRecall(pack, measured.recall);
  if (!lacksTheta) return { slices, measured: { ...measured, theta: null } };
  const { theta } = measured;
  return { slices: { ...slices, theta, digest: await addThresholds(output, theta) }, measured };
}

/** `describe`: says how much of all is done. */
async function withBar<Result>(
  label: string,
  describe: (done: number, total: number | null) => string,
  run: (onProgress: ProgressBar['update']) => Promise<Result>,
): Promise<Result> {
  const bar = createProgressBar(label, describe);
  try {
    return await run((done, total) => bar.update(done, total));
  } finally {
    bar.stop();
  }
}

/** Null also where the file is damaged: it is then measured again. */
async function measuredRecall(pack: Pack): Promise<readonly FormRecall[] | null> {
  return await readShadowRecall(pack).catch((thrown: unknown) => {
    if (toOdmoeError(thrown).code === 'PACK_CORRUPT') return null;
    throw thrown;
  });
}

/** The command that continues where this one ended: it measures what is missing. */
function commandAgain(checkpoint: string, output: string, { slices, only, recall }: PackFlags): string {
  const flags = [
    ...(slices === undefined ? [] : [` --slices ${slices}`]),
    ...(only ? [' --only'] : []),
    ...(recall ? [' --recall'] : []),
  ];
  return `odmoe pack ${only ? checkpoint : output} ${output}${flags.join('')}`;
}

async function packWithProgress(
  checkpoint: string,
  output: string,
  flags: PackFlags,
  signal: AbortSignal,
): Promise<{ outcome: PackOutcome; choice: MeasuredChoice | null }> {
  const bar = createProgressBar('packing');
  try {
    const { setting, measured } = await settingFor(checkpoint, output, flags, signal);
    if (measured !== null && !flags.json) standardOutput.write(`${codecChoiceLines(measured).join('\n')}\n`);
    const outcome = await packCheckpoint(
      checkpoint,
      output,
      {
        codec: setting,
        shards: flags.shards,
        name: flags.name ?? null,
        onDamagedPack: 'refuse',
        longContext: flags.longContext,
        consume: flags.consume,
        slicesOnly: flags.only,
        onProgress: (done, total) => bar.update(done, total),
        onWarning: warn,
        signal,
      },
      NATIVE_PACKING_TOOLS,
    );
    return { outcome, choice: measured };
  } finally {
    bar.stop();
  }
}

/** The codec from the flags; `measured` is set if it was chosen by measuring. */
async function settingFor(
  directory: string,
  output: string,
  flags: PackFlags,
  signal: AbortSignal,
): Promise<{ setting: CodecSetting; measured: MeasuredChoice | null }> {
  if (flags.only) return { setting: DEFAULT_CODEC, measured: null };
  if (flags.codec !== AUTO) return { setting: codecSetting(flags.codec, flags.level ?? null), measured: null };
  if (flags.level !== undefined) {
    throw new OdmoeError('USAGE', `--level ${flags.level}: --codec ${AUTO} chooses the level too; name a codec`);
  }
  // A directory that packing refuses need not be measured first.
  if (await isPackDirectory(directory)) return { setting: DEFAULT_CODEC, measured: null };
  const checkpoint = await openSourceCheckpoint(directory, { longContext: flags.longContext });
  const earlier = await earlierCodec(checkpoint, output);
  if (earlier !== null) {
    if (!flags.json) standardOutput.write(`${output} was begun with ${describeCodec(earlier)}, and goes on with it\n`);
    return { setting: earlier, measured: null };
  }
  const measured = await measureAndChoose(checkpoint, NATIVE_MEASURING_TOOLS, signal);
  const { codec, level } = measured.chosen;
  return { setting: { codec, level }, measured };
}

async function packSummary(outcome: PackOutcome, elapsedMs: number): Promise<string[]> {
  const { directory, name, digest, sourceBytes, packBytes, files, resumedFiles } = outcome;
  const resumed = resumedFiles > 0 && !outcome.alreadyWhole ? `, ${resumedFiles} of them from an earlier run` : '';
  const first = outcome.alreadyWhole
    ? `${directory} already holds the whole pack of this checkpoint; its weights were compared in ${formatDuration(elapsedMs)}`
    : `packed ${formatBytes(sourceBytes)} of weights into ${directory} in ${formatDuration(elapsedMs)}`;
  const codec = describeCodec(outcome.codec);
  const padding = paddingLine(packCompression((await openAnyPack(directory)).manifest));
  return [
    first,
    `  a model of the family ${outcome.family}${leftOutText(outcome)}`,
    ...(outcome.consumedShards > 0 ? [`  deleted ${outcome.consumedShards} weight files of the checkpoint`] : []),
    `  ${name}: ${files} files${resumed}, ${formatBytes(packBytes)}, ${codec}`,
    ...(padding === null ? [] : [`  ${padding}`]),
    `  digest ${digest}`,
  ];
}

/** The number of skipped tensors, with the first few names. */
function leftOutText({ leftOut }: PackOutcome): string {
  if (leftOut.length === 0) return '';
  const tensors = leftOut.reduce((sum, group) => sum + group.tensors, 0);
  const named = leftOut.slice(0, LEFT_OUT_NAMED).map(({ name }) => name);
  const more = leftOut.length > LEFT_OUT_NAMED ? ', ...' : '';
  return `; left out ${tensors} tensors that text does not need (${named.join(', ')}${more})`;
}
