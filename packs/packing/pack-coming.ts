import { rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import type { ProcessLock } from '../../shared/base/files/process-lock.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { freeBytes, requireFreeBytes, writeFailure } from '../../shared/base/files/storage-error.js';
import { type Checkpoint, openCheckpoint } from '../checkpoint/checkpoint.js';
import type { SafetensorsFile } from '../checkpoint/safetensors-file.js';
import type { FinishedFile } from '../format/manifest.js';
import { shippedFormats } from '../../shared/model/format-shares.js';
import { type CodecSetting, codecSetting, settingOfFormats } from '../format/pack-codec.js';
import { DENSE_FILE, PACK_FORMAT_VERSION } from '../format/pack-layout.js';
import {
  type ByteRange,
  comingPeakBytes,
  type ComingFiles,
  DenseRemains,
  denseRanges,
  rangesBytes,
  type RoomStep,
} from './coming-files.js';
import { fileAhead, FileArrivals } from './file-arrivals.js';
import { draftHeadWarning, leftOutTensors } from './left-out-tensors.js';
import { modelBytes } from './model-bytes.js';
import { acquirePackingLock, prepareOutputDirectory } from './output-directory.js';
import { openJournal } from './pack-checkpoint.js';
import type { PackOutcome } from './pack-outcome.js';
import type { PackingContext, PackingTools } from './packing-context.js';
import type { PackingJournal, PackingPlan } from './packing-journal.js';
import { planFiles, type PlannedFile } from './planned-files.js';
import { sourceIdentity } from './source-identity.js';
import { SourceReader } from './source-reader.js';
import { damageError, verifyFinishedFile } from './verify-pack.js';
import { manifestOf, writeManifest, writePlannedFile } from './write-pack.js';

export interface PackComingOptions {
  codec: CodecSetting;
  shards: number;
  /** Name that the pack records. */
  name: string;
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  /** Called before the work begins. */
  onWarning?: (warning: string) => void;
  signal?: AbortSignal;
}

/** The room that the pack of a coming checkpoint takes. */
export interface ComingNeeds {
  /** Bytes of the finished pack, about. */
  packBytes: number;
  /** Most bytes on the disk beyond those that are there now, at any moment, if no file comes ahead. */
  peakBytes: number;
}

/**
 * Makes the pack of a checkpoint whose weight files come one by one. A layer is packed as soon as its files are there; a file whose layers are all
 * packed and read back is deleted, but for its dense tensors. So the disk never holds checkpoint and pack at once. Where it has room, the next file
 * comes while others are packed. An interrupted run is continued by the next one.
 * @throws as packCheckpoint, and what `source.bring` throws
 */
export async function packComing(
  source: ComingFiles,
  outputDirectory: string,
  options: PackComingOptions,
  tools: PackingTools,
): Promise<PackOutcome> {
  const checkpoint = await openCheckpoint(source.directory, { gone: source.headers });
  const warning = draftHeadWarning(checkpoint);
  if (warning !== null) options.onWarning?.(warning);
  const directory = await prepareOutputDirectory(checkpoint.directory, outputDirectory);
  const lock = await acquirePackingLock(directory);
  try {
    const packing = await ComingPacking.begin(checkpoint, source, directory, options, { lock, tools });
    return await packing.run();
  } finally {
    await lock.release();
  }
}

/** The room that a pack of the checkpoint would take, if nothing of it were here. `checkpoint`: opened by its headers. */
export async function comingNeeds(
  checkpoint: Checkpoint,
  options: Pick<PackComingOptions, 'codec' | 'shards'>,
  tools: PackingTools,
): Promise<ComingNeeds> {
  const planned = inOrder(await planFiles(checkpoint, contextOf(checkpoint, '', options, tools)));
  const room = roomOf(checkpoint, planned, denseRanges(checkpoint), new Set());
  return {
    packBytes: planned.reduce((sum, { expectedBytes }) => sum + expectedBytes, 0),
    peakBytes: comingPeakBytes(room.steps, room.files, new Set(), false),
  };
}

class ComingPacking {
  private readonly ranges: ReadonlyMap<string, readonly ByteRange[]>;
  private readonly remains: DenseRemains;
  private readonly arrivals: FileArrivals;
  /** The disk has room for a file that comes ahead. */
  private isAhead = false;

  private constructor(
    private readonly checkpoint: Checkpoint,
    private readonly source: ComingFiles,
    private readonly plan: PackingPlan,
    private readonly planned: readonly PlannedFile[],
    private readonly journal: PackingJournal,
    private readonly context: PackingContext,
    private readonly lock: ProcessLock,
  ) {
    this.ranges = denseRanges(checkpoint);
    this.remains = new DenseRemains(source, this.ranges);
    this.arrivals = new FileArrivals(source);
  }

  static async begin(
    checkpoint: Checkpoint,
    source: ComingFiles,
    directory: string,
    options: PackComingOptions,
    { lock, tools }: { lock: ProcessLock; tools: PackingTools },
  ): Promise<ComingPacking> {
    const context = contextOf(checkpoint, directory, options, tools);
    const plan: PackingPlan = {
      format: 'odmoe-packing',
      odmoe_version: odmoeVersion(),
      pack_format_version: PACK_FORMAT_VERSION,
      name: options.name,
      codec: context.codec.codec,
      codec_level: context.codec.level,
      shards: options.shards,
      long_context: false,
      source_identity: await sourceIdentity(checkpoint),
    };
    const planned = inOrder(await planFiles(checkpoint, context));
    const journal = await openJournal(directory, plan);
    return new ComingPacking(checkpoint, source, plan, planned, journal, context, lock);
  }

  async run(): Promise<PackOutcome> {
    const resumedFiles = this.journal.verified.size;
    await this.remains.prepare();
    const { outputDirectory } = this.context;
    await requireFreeBytes(outputDirectory, await this.missingBytes());
    const free = await freeBytes(outputDirectory);
    this.isAhead = free === null || free >= (await this.missingBytes(true));
    await this.releaseFiles();
    try {
      await this.packAll();
    } finally {
      await this.arrivals.end();
    }
    return this.finish(resumedFiles);
  }

  private async packAll(): Promise<void> {
    for (const [at, file] of this.planned.entries()) {
      if (this.isDone(file.name)) {
        this.context.onBytes(file.sourceBytes);
        continue;
      }
      await (file.name === DENSE_FILE ? this.packDense() : this.packFrom(file, this.planned.slice(at + 1)));
      await this.releaseFiles();
    }
  }

  /** Brings what a file is made from, and writes it. A file that those behind it need comes meanwhile. */
  private async packFrom(planned: PlannedFile, behind: readonly PlannedFile[]): Promise<void> {
    for (const name of namesOf(planned)) await this.arrivals.bring(name);
    const later = behind.filter(({ name }) => name !== DENSE_FILE && !this.isDone(name)).map(namesOf);
    const ahead = this.isAhead ? fileAhead(later, await this.presentFiles()) : null;
    if (ahead !== null) this.arrivals.begin(ahead);
    await this.writeFrom(this.source.directory, planned.name);
  }

  private async presentFiles(): Promise<Set<string>> {
    const present = new Set<string>();
    for (const [name, { path }] of this.source.headers) if (await fileExists(path)) present.add(name);
    return present;
  }

  /** Brings the weight files that nothing else needed, keeps the dense tensors of each, and writes dense.safetensors. */
  private async packDense(): Promise<void> {
    for (const name of this.ranges.keys()) {
      if (await this.remains.has(name)) continue;
      await this.arrivals.bring(name);
      await this.remains.takeOver(this.header(name));
    }
    await this.writeFrom(this.remains.directory, DENSE_FILE);
  }

  /** Writes a file of the pack from the checkpoint as it is in that directory now: values, such as biases of experts, are read from what is there. */
  private async writeFrom(directory: string, wanted: string): Promise<void> {
    const checkpoint = await openCheckpoint(directory, { gone: await this.goneIn(directory) });
    for (const file of checkpoint.files) this.requireSameHeader(file);
    const file = (await planFiles(checkpoint, this.context)).find(({ name }) => name === wanted);
    assertInvariant(file !== undefined, 'a checkpoint of the same headers makes the same files of a pack.');
    await this.write(file);
  }

  /** Headers are read before files, and are not verified by themselves. */
  private requireSameHeader({ path, headerDigest }: SafetensorsFile): void {
    if (this.header(basename(path)).headerDigest === headerDigest) return;
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${path}: its begin is another than the hub sent first; remove ${this.source.directory} and run the same command again`,
    );
  }

  private async write(file: PlannedFile): Promise<void> {
    const { outputDirectory: directory, tools } = this.context;
    let finished: FinishedFile;
    try {
      finished = await writePlannedFile(file, this.lock, this.context);
      await this.journal.record(finished);
    } catch (thrown) {
      throw writeFailure(thrown, join(directory, file.name), await this.missingBytes());
    }
    const damages = await verifyFinishedFile(finished, directory, tools);
    if (damages.length > 0) {
      await rm(join(directory, file.name), { force: true });
      throw new OdmoeError(
        'STORAGE_FAILED',
        `what was written is not what is read back: ${damageError(directory, damages).message}; the file is removed: check the disk, then run the same command again`,
      );
    }
    await this.journal.record({ verified: file.name });
  }

  private isDone(name: string): boolean {
    return this.journal.finished.has(name) && this.journal.verified.has(name);
  }

  /** Deletes the weight files that are here and whose experts are all packed; their dense tensors stay. */
  private async releaseFiles(): Promise<void> {
    const left = this.planned.filter(({ name }) => name !== DENSE_FILE && !this.isDone(name));
    const needed = new Set(left.flatMap(namesOf));
    for (const [name, header] of this.source.headers) {
      if (!needed.has(name) && (await fileExists(header.path))) await this.remains.takeOver(header);
    }
  }

  /** Headers of the weight files that are not in the directory. Their paths lead into it all the same. */
  private async goneIn(directory: string): Promise<Map<string, SafetensorsFile>> {
    const gone = new Map<string, SafetensorsFile>();
    for (const [name, header] of this.source.headers) {
      const path = join(directory, name);
      if (!(await fileExists(path))) gone.set(name, { ...header, path });
    }
    return gone;
  }

  private header(name: string): SafetensorsFile {
    return requirePresent(this.source.headers.get(name), 'the header of each weight file is known.');
  }

  private async missingBytes(isAhead = this.isAhead): Promise<number> {
    const here = await this.presentFiles();
    const kept = new Set<string>();
    for (const name of this.source.headers.keys()) if (await this.remains.has(name)) kept.add(name);
    const left = this.planned.filter(({ name }) => !this.isDone(name));
    const { steps, files } = roomOf(this.checkpoint, left, this.ranges, kept);
    return comingPeakBytes(steps, files, here, isAhead);
  }

  private async finish(resumedFiles: number): Promise<PackOutcome> {
    const { outputDirectory: directory, codec } = this.context;
    const finished = this.filesInPackOrder();
    const manifest = manifestOf(this.checkpoint, this.plan, finished, []);
    await this.lock.assertHeld();
    const digest = await writeManifest(directory, manifest);
    await this.journal.remove();
    return {
      directory,
      name: this.plan.name,
      family: this.checkpoint.family,
      leftOut: leftOutTensors(this.checkpoint),
      digest,
      codec,
      sourceBytes: modelBytes(this.checkpoint),
      packBytes: manifest.files.reduce((sum, file) => sum + file.size_bytes, 0),
      files: manifest.files.length,
      resumedFiles,
      consumedShards: this.source.headers.size,
      alreadyWhole: false,
    };
  }

  /** As packCheckpoint lists them, so that a pack has the same digest whichever way it was made. */
  private filesInPackOrder(): FinishedFile[] {
    const experts = this.planned.filter(({ sourcePaths, name }) => sourcePaths.size > 0 && name !== DENSE_FILE);
    const others = this.planned.filter((file) => !experts.includes(file));
    return [...others, ...experts].flatMap(({ name }) => this.journal.finished.get(name) ?? []);
  }
}

/** Experts come before dense.safetensors, which needs tensors of nearly all weight files. */
function inOrder(planned: readonly PlannedFile[]): PlannedFile[] {
  return [...planned.filter(({ name }) => name !== DENSE_FILE), ...planned.filter(({ name }) => name === DENSE_FILE)];
}

function namesOf({ sourcePaths }: Pick<PlannedFile, 'sourcePaths'>): string[] {
  return [...sourcePaths].map((path) => basename(path)).sort();
}

function contextOf(
  checkpoint: Checkpoint,
  outputDirectory: string,
  options: Omit<PackComingOptions, 'name'>,
  tools: PackingTools,
): PackingContext {
  const { codec, shards, signal, onProgress } = options;
  const totalBytes = modelBytes(checkpoint);
  let doneBytes = 0;
  return {
    outputDirectory,
    codec: settingOfFormats(shippedFormats(checkpoint), codecSetting(codec.codec, codec.level)),
    shards,
    slicesOnly: false,
    tools,
    reader: new SourceReader(tools.openTensor, signal ?? null),
    onBytes: (bytes) => {
      doneBytes += bytes;
      onProgress?.(doneBytes, totalBytes);
    },
  };
}

/** Steps as the room on the disk sees them. `left`: files of the pack that are still to be made; `kept`: weight files whose remains are here. */
function roomOf(
  checkpoint: Checkpoint,
  left: readonly PlannedFile[],
  ranges: ReadonlyMap<string, readonly ByteRange[]>,
  kept: ReadonlySet<string>,
): { steps: RoomStep[]; files: Map<string, { sizeBytes: number; keptBytes: number }> } {
  const experts = left.filter(({ name }) => name !== DENSE_FILE);
  const dense = left.find(({ name }) => name === DENSE_FILE);
  const lastUse = new Map(experts.flatMap((file, at) => namesOf(file).map((name) => [name, at] as const)));
  const steps = experts.map((file, at): RoomStep => {
    const needs = namesOf(file);
    const lastUseOf = needs.filter((name) => lastUse.get(name) === at);
    return { needs, writtenBytes: file.expectedBytes, lastUseOf, later: experts.slice(at + 1).map(namesOf) };
  });
  if (dense !== undefined) {
    // Files with dense tensors alone come one by one at the end.
    const alone = [...ranges.keys()].filter((name) => !lastUse.has(name) && !kept.has(name));
    for (const name of alone) steps.push({ needs: [name], writtenBytes: 0, lastUseOf: [name], later: [] });
    steps.push({ needs: [], writtenBytes: dense.expectedBytes, lastUseOf: [], later: [] });
  }
  const files = new Map(
    checkpoint.files.map(({ path, sizeBytes }) => {
      const name = basename(path);
      return [name, { sizeBytes, keptBytes: kept.has(name) ? 0 : rangesBytes(ranges.get(name) ?? []) }] as const;
    }),
  );
  return { steps, files };
}
