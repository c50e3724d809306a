import { realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Checkpoint } from '../checkpoint/checkpoint.js';
import { openSourceCheckpoint } from '../gguf/open-source-checkpoint.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import type { SafetensorsFile } from '../checkpoint/safetensors-file.js';
import { isPackDirectory } from '../format/open-pack.js';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import { isModelName, MODEL_NAME_LIMIT } from '../format/manifest.js';
import { JOURNAL_FILE, MANIFEST_FILE, PACK_FORMAT_VERSION, SHARDS_LIMIT } from '../format/pack-layout.js';
import { shippedFormats } from '../../shared/model/format-shares.js';
import { type CodecSetting, codecSetting, settingOfFormats } from '../format/pack-codec.js';
import { checkConsume } from './check-consume.js';
import { expertTensors, matchWholePack } from './match-whole-pack.js';
import { acquirePackingLock, clearUnfinished, prepareOutputDirectory } from './output-directory.js';
import type { PackOutcome } from './pack-outcome.js';
import type { PackingContext, PackingTools } from './packing-context.js';
import { PackingJournal, type PackingPlan } from './packing-journal.js';
import { planFiles, type PlannedFile } from './planned-files.js';
import { draftHeadWarning, leftOutTensors } from './left-out-tensors.js';
import { modelBytes } from './model-bytes.js';
import { goneFile, isAnotherFile, peakBytes, CheckpointFileConsumer, sourceFiles } from './checkpoint-file-consumer.js';
import { sourceIdentity } from './source-identity.js';
import type { ProcessLock } from '../../shared/base/files/process-lock.js';
import { requireFreeBytes, writeFailure } from '../../shared/base/files/storage-error.js';
import { SourceReader } from './source-reader.js';
import { manifestOf, writeManifest, writePlannedFile } from './write-pack.js';

export interface PackOptions {
  codec: CodecSetting;
  /** Number of chunks of each coded plane. */
  shards: number;
  /** Name in the pack; null: the checkpoint's. */
  name: string | null;
  /** Treatment of a damaged whole pack in the output directory; 'refuse' leaves it unchanged. */
  onDamagedPack: 'refuse' | 'replace';
  /** True: ropes that change with the length use the long factors. */
  longContext?: boolean;
  /** Deletes each weight file of the checkpoint once everything made from it is verified. */
  consume?: boolean;
  /** Leaves the experts' lossless parts out. Only addSlices makes what this leaves usable. */
  slicesOnly?: boolean;
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  /** Called before the work begins, or behind a comparison with a whole pack. */
  onWarning?: (warning: string) => void;
  signal?: AbortSignal;
}

/**
 * A third less to read than raw; a core or two decode as fast as a disk reads; and the bytes depend on odmoe alone, so that each machine may
 * make the same pack by itself.
 */
export const DEFAULT_CODEC: CodecSetting = { codec: 'huffman', level: null };
export const DEFAULT_SHARDS = 4;

/**
 * Packs a Hugging Face checkpoint or a GGUF file (docs/pack-format.md), a few rows at a time: memory does not grow with the model. An interrupted run
 * is continued by the next one with the same arguments; until the end the directory does not open as a pack.
 * @throws USAGE, MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FULL, STORAGE_FAILED, CANCELLED, LockHeldError
 */
export async function packCheckpoint(
  checkpointDirectory: string,
  outputDirectory: string,
  options: PackOptions,
  tools: PackingTools,
): Promise<PackOutcome> {
  const { longContext = false, consume = false, slicesOnly = false } = options;
  if (slicesOnly && consume) {
    throw new OdmoeError('USAGE', 'slices are made when the rest of the pack is: --consume cannot go with --only');
  }
  const wanted = checkedCodec(options);
  const checkpoint = await openForPacking(checkpointDirectory, outputDirectory, options);
  const { codec, level } = slicesOnly
    ? codecSetting('raw', null)
    : settingOfFormats(shippedFormats(checkpoint), wanted);
  const directory = await prepareOutputDirectory(checkpoint.directory, outputDirectory);
  const lock = await acquirePackingLock(directory);
  const reader = new SourceReader(tools.openTensor, options.signal ?? null);
  let doneBytes = 0;
  const totalBytes = modelBytes(checkpoint);
  const context: PackingContext = {
    outputDirectory: directory,
    codec: { codec, level },
    shards: options.shards,
    slicesOnly,
    tools,
    reader,
    onBytes: (bytes) => {
      doneBytes += bytes;
      options.onProgress?.(doneBytes, totalBytes);
    },
  };
  try {
    const plan: PackingPlan = {
      format: 'odmoe-packing',
      odmoe_version: odmoeVersion(),
      pack_format_version: PACK_FORMAT_VERSION,
      name: options.name ?? recordedName(checkpoint.name),
      codec,
      codec_level: level,
      shards: options.shards,
      long_context: longContext,
      source_identity: await sourceIdentity(checkpoint),
      ...(slicesOnly && { slices_only: true }),
    };
    const whole = await wholePackOutcome(checkpoint, plan, options, context);
    return whole ?? (await writePack(checkpoint, plan, consume, lock, context));
  } finally {
    await lock.release();
  }
}

/** Opens the checkpoint, and says what there is to warn of. @throws USAGE for a pack; the errors of openSource */
async function openForPacking(
  checkpointDirectory: string,
  outputDirectory: string,
  { longContext = false, consume = false, slicesOnly = false, onWarning }: PackOptions,
): Promise<Checkpoint> {
  if (await isPackDirectory(checkpointDirectory)) {
    throw new OdmoeError(
      'USAGE',
      `${checkpointDirectory}: is a pack already; give the checkpoint that it was made from`,
    );
  }
  const checkpoint = await openSource(checkpointDirectory, outputDirectory, longContext);
  const ofConsuming = consume ? await consumeWarning(checkpoint, checkpointDirectory) : null;
  for (const warning of [ofConsuming, draftHeadWarning(checkpoint)]) if (warning !== null) onWarning?.(warning);
  // A head's experts are never cut into slices.
  return slicesOnly ? { ...checkpoint, draftHead: null } : checkpoint;
}

/** Files that --consume deletes besides, in words. @throws USAGE for a GGUF file; the errors of checkConsume */
async function consumeWarning({ files, madeFiles }: Checkpoint, path: string): Promise<string | null> {
  if (madeFiles === null) return checkConsume(files);
  throw new OdmoeError(
    'USAGE',
    `${path}: is a GGUF file, whose header says what the model is: --consume, which deletes files, is for checkpoints`,
  );
}

/** @throws USAGE unless codec, shards and name are valid for a pack */
function checkedCodec(options: PackOptions): CodecSetting {
  const wanted = codecSetting(options.codec.codec, options.codec.level);
  if (!Number.isInteger(options.shards) || options.shards < 1 || options.shards > SHARDS_LIMIT) {
    throw new OdmoeError('USAGE', `shards ${options.shards}: expected a whole number from 1 to ${SHARDS_LIMIT}`);
  }
  if (options.name !== null && !isModelName(options.name)) {
    throw new OdmoeError(
      'USAGE',
      `name ${JSON.stringify(options.name)}: expected 1 to ${MODEL_NAME_LIMIT} printable characters`,
    );
  }
  return wanted;
}

/** Turns a directory's name into one that a pack can record. */
function recordedName(name: string): string {
  return name.replaceAll(/\p{Control}/gu, '_').slice(0, MODEL_NAME_LIMIT);
}

/** Null if there is no whole pack in the output directory, or if it must be replaced. */
async function wholePackOutcome(
  checkpoint: Checkpoint,
  plan: PackingPlan,
  { onDamagedPack, consume = false, onWarning }: PackOptions,
  context: PackingContext,
): Promise<PackOutcome | null> {
  const { outputDirectory: directory } = context;
  if (!(await fileExists(join(directory, MANIFEST_FILE)))) return null;
  try {
    const earlier = await PackingJournal.resume(directory, plan);
    const consumed = earlier?.consumed ?? new Map<string, unknown>();
    const outcome = await matchWholePack(checkpoint, plan, consumed, context, { consume, onWarning });
    const journal = consume ? (earlier ?? (await PackingJournal.begin(directory, plan))) : earlier;
    if (journal !== null) await finishConsuming(checkpoint, journal, consume, context);
    return { ...outcome, consumedShards: journal?.consumed.size ?? 0 };
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError)) throw thrown;
    const isUnusable = thrown.code === 'PACK_CORRUPT' || thrown.code === 'MODEL_UNSUPPORTED';
    if (isUnusable && onDamagedPack === 'replace') return null;
    if (thrown.code !== 'MODEL_UNSUPPORTED') throw thrown;
    throw new OdmoeError(
      'USAGE',
      `${context.outputDirectory}: holds a pack already, which this odmoe cannot read; remove it or choose another directory`,
      { cause: thrown },
    );
  }
}

/** Deletes the remaining weight files. The whole pack has just been compared with its manifest. */
async function finishConsuming(
  checkpoint: Checkpoint,
  journal: PackingJournal,
  consume: boolean,
  context: PackingContext,
): Promise<void> {
  if (consume) {
    const planned = await planFiles(checkpoint, context);
    for (const { name } of planned) await journal.record({ verified: name });
    await consumerOf(checkpoint, planned, journal, context).finishedAll();
  }
  await journal.remove();
}

function consumerOf(
  checkpoint: Checkpoint,
  planned: readonly PlannedFile[],
  journal: PackingJournal,
  { outputDirectory, tools }: PackingContext,
): CheckpointFileConsumer {
  return new CheckpointFileConsumer(sourceFiles(checkpoint.files, planned), journal, outputDirectory, tools);
}

async function writePack(
  checkpoint: Checkpoint,
  plan: PackingPlan,
  consume: boolean,
  lock: ProcessLock,
  context: PackingContext,
): Promise<PackOutcome> {
  const { outputDirectory: directory } = context;
  const planned = await planFiles(checkpoint, context);
  const journal = await openJournal(directory, plan);
  requireSources(planned, journal, directory);
  const sources = sourceFiles(checkpoint.files, planned);
  const missingBytes = (): number =>
    peakBytes(planned, new Set(journal.finished.keys()), consume ? sources : [], new Set(journal.consumed.keys()));
  const resumedFiles = journal.finished.size;
  await requireFreeBytes(directory, missingBytes());
  const consumer = consume ? consumerOf(checkpoint, planned, journal, context) : null;
  await consumer?.resume();
  for (const file of planned) {
    let finished = journal.finished.get(file.name);
    if (finished === undefined) {
      try {
        finished = await writePlannedFile(file, lock, context);
        await journal.record(finished);
      } catch (thrown) {
        throw writeFailure(thrown, join(directory, file.name), missingBytes());
      }
    } else {
      context.onBytes(file.sourceBytes);
    }
    await consumer?.finished(finished);
  }
  const finished = planned.flatMap((file) => journal.finished.get(file.name) ?? []);
  const sliced = context.slicesOnly ? await expertTensors(checkpoint, context, 1) : [];
  const manifest = manifestOf(checkpoint, plan, finished, sliced);
  await lock.assertHeld();
  const digest = await writeManifest(directory, manifest);
  await consumer?.finishedAll();
  await journal.remove();
  return {
    directory,
    name: plan.name,
    family: checkpoint.family,
    leftOut: leftOutTensors(checkpoint),
    digest,
    codec: context.codec,
    sourceBytes: modelBytes(checkpoint),
    packBytes: manifest.files.reduce((sum, file) => sum + file.size_bytes, 0),
    files: manifest.files.length,
    resumedFiles,
    consumedShards: journal.consumed.size,
    alreadyWhole: false,
  };
}

/** Requires that the weight files of every unfinished file still exist. */
function requireSources(planned: readonly PlannedFile[], journal: PackingJournal, directory: string): void {
  for (const { name, sourcePaths } of planned) {
    if (journal.finished.has(name)) continue;
    const gone = [...sourcePaths].map((path) => basename(path)).find((shard) => journal.consumed.has(shard));
    if (gone === undefined) continue;
    throw new OdmoeError(
      'PACK_CORRUPT',
      `${directory}: ${name} was finished and is not whole any more, and ${gone}, from which it was made, was deleted since ` +
        '(--consume); put that file of the checkpoint in its place again, remove the pack and pack anew',
    );
  }
}

/** The journal of a pack that was begun with this plan, or a new one. @throws USAGE, STORAGE_FULL, STORAGE_FAILED */
export async function openJournal(directory: string, plan: PackingPlan): Promise<PackingJournal> {
  try {
    const journal = await PackingJournal.resume(directory, plan);
    if (journal !== null) return journal;
    await requireNothingConsumed(directory);
    // The new journal is written first: from here to the end it marks the directory as unfinished.
    const begun = await PackingJournal.begin(directory, plan);
    await clearUnfinished(directory, new Set([JOURNAL_FILE]));
    return begun;
  } catch (thrown) {
    throw writeFailure(thrown, directory, null);
  }
}

/** Refuses to begin anew if weight files were deleted: the unfinished pack may be all that is left of a checkpoint. */
async function requireNothingConsumed(directory: string): Promise<void> {
  const [shard] = await PackingJournal.consumedIn(directory);
  const plan = await PackingJournal.planIn(directory);
  if (shard === undefined || plan === null) return;
  const codec = plan.codec_level === null ? plan.codec : `${plan.codec} --level ${plan.codec_level}`;
  throw new OdmoeError(
    'USAGE',
    `${directory}: a pack was begun here from another checkpoint or with other options, and files of that checkpoint, such as ` +
      `${shard.name}, were deleted since (--consume): go on with that checkpoint, --name ${JSON.stringify(plan.name)} --codec ${codec} ` +
      `--shards ${plan.shards}${plan.long_context ? ' --long-context' : ''} and odmoe ${plan.odmoe_version}, or choose another directory`,
  );
}

/** Opens the checkpoint, with the recorded headers of weight files that an earlier run deleted. @throws as openCheckpoint */
async function openSource(directory: string, outputDirectory: string, longContext: boolean): Promise<Checkpoint> {
  try {
    return await openSourceCheckpoint(directory, { longContext, gone: await goneFiles(directory, outputDirectory) });
  } catch (thrown) {
    const isMissing = thrown instanceof OdmoeError && thrown.code === 'MODEL_NOT_FOUND';
    if (!isMissing || !(await fileExists(join(outputDirectory, MANIFEST_FILE)))) throw thrown;
    throw new OdmoeError(
      'MODEL_NOT_FOUND',
      `${thrown.message}; ${outputDirectory} holds a whole pack: if its checkpoint was consumed, nothing is left to do`,
      { cause: thrown },
    );
  }
}

/**
 * Weight files of the checkpoint that an earlier run deleted. A deleted file is left out if another file now has its name: that one must be
 * packed, or kept.
 */
async function goneFiles(
  checkpointDirectory: string,
  outputDirectory: string,
): Promise<ReadonlyMap<string, SafetensorsFile>> {
  const directory = await realpath(checkpointDirectory).catch(() => checkpointDirectory);
  const gone = new Map<string, SafetensorsFile>();
  for (const shard of await PackingJournal.consumedIn(outputDirectory)) {
    const path = join(directory, shard.name);
    if (!(await isAnotherFile(shard, path))) gone.set(shard.name, goneFile(shard, path));
  }
  return gone;
}
