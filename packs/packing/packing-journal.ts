import { appendFile, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { codecLevelSchema, codecSchema, finishedFileSchema, type FinishedFile } from '../format/manifest.js';
import { JOURNAL_FILE } from '../format/pack-layout.js';

/** The source and the settings of a pack. A journal with a plan of another pack is useless (isSamePack). */
export const packingPlanSchema = z.strictObject({
  format: z.literal('odmoe-packing'),
  /** The release that began the journal. Another one goes on with it, if it makes packs of the same format. */
  odmoe_version: z.string(),
  /** Absent in plans of 0.2. */
  pack_format_version: z.int().optional(),
  name: z.string(),
  codec: codecSchema,
  codec_level: codecLevelSchema,
  shards: z.int(),
  long_context: z.boolean(),
  /** Identity of the checkpoint's files: their names, sizes, times of change, headers. */
  source_identity: z.string(),
  /** Absent for a pack with the experts' lossless parts. */
  slices_only: z.literal(true).optional(),
});
export type PackingPlan = z.infer<typeof packingPlanSchema>;

/** True if a pack of one plan is a pack of the other, whichever release began it. Pure. */
export function isSamePack(one: PackingPlan, other: PackingPlan): boolean {
  const ofAnyRelease = (plan: PackingPlan): string => JSON.stringify({ ...plan, odmoe_version: '' });
  return ofAnyRelease(one) === ofAnyRelease(other);
}

/** A weight file of the checkpoint that is deleted, or about to be: everything needed of it is in verified files of the pack. */
const consumedFileSchema = z.strictObject({
  name: z.string().min(1),
  size_bytes: z.int().min(0),
  modified_ms: z.number(),
  /** Its safetensors header, with the places of its tensors. */
  header: z.string(),
});
export type ConsumedFile = z.infer<typeof consumedFileSchema>;

const recordSchema = z.union([
  finishedFileSchema,
  z.strictObject({ verified: z.string() }),
  z.strictObject({ consumed: consumedFileSchema }),
]);

/**
 * The journal of a pack in the making: a line with the plan, then a line for each finished file, for each file that was read back and found
 * correct, and for each weight file of the checkpoint that is deleted. A last line cut short by a crash is ignored.
 */
export class PackingJournal {
  private readonly path: string;

  /** Finished, verified and deleted files, by name. */
  readonly finished = new Map<string, FinishedFile>();
  readonly verified = new Set<string>();
  readonly consumed = new Map<string, ConsumedFile>();

  private constructor(directory: string) {
    this.path = join(directory, JOURNAL_FILE);
  }

  /** Opens the journal if it has the same plan. Files without their recorded size count as unfinished. */
  static async resume(directory: string, plan: PackingPlan): Promise<PackingJournal | null> {
    const lines = await readLines(join(directory, JOURNAL_FILE));
    const found = packingPlanSchema.safeParse(parseLine(lines[0]));
    if (!found.success || !isSamePack(found.data, plan)) return null;
    const journal = new PackingJournal(directory);
    for (const line of lines.slice(1)) journal.take(parseLine(line));
    for (const [name, { file }] of journal.finished) {
      if ((await fileSize(join(directory, name))) === file.size_bytes) continue;
      journal.finished.delete(name);
      journal.verified.delete(name);
    }
    return journal;
  }

  /** Deleted weight files of the checkpoint from which a pack in the directory is made. */
  static async consumedIn(directory: string): Promise<ConsumedFile[]> {
    const journal = new PackingJournal(directory);
    for (const line of (await readLines(journal.path)).slice(1)) journal.take(parseLine(line));
    return [...journal.consumed.values()];
  }

  /** The plan of an unfinished pack in the directory; null if there is none. */
  static async planIn(directory: string): Promise<PackingPlan | null> {
    const [line] = await readLines(join(directory, JOURNAL_FILE));
    return packingPlanSchema.safeParse(parseLine(line)).data ?? null;
  }

  /** Begins a new journal and replaces any other. */
  static async begin(directory: string, plan: PackingPlan): Promise<PackingJournal> {
    await writeFile(join(directory, JOURNAL_FILE), `${JSON.stringify(plan)}\n`, { flush: true });
    await syncDirectory(directory);
    return new PackingJournal(directory);
  }

  /** The record is on the disk when this resolves. */
  async record(record: z.infer<typeof recordSchema>): Promise<void> {
    // The newline at the begin ends a line that a crash may have cut short.
    await appendFile(this.path, `\n${JSON.stringify(record)}\n`, { flush: true });
    this.take(record);
  }

  private take(line: unknown): void {
    const record = recordSchema.safeParse(line).data;
    if (record === undefined) return;
    if ('verified' in record) {
      this.verified.add(record.verified);
    } else if ('consumed' in record) {
      this.consumed.set(record.consumed.name, record.consumed);
    } else {
      this.finished.set(record.file.name, record);
      // The file has been written again, so it is no longer verified.
      this.verified.delete(record.file.name);
    }
  }

  async remove(): Promise<void> {
    await rm(this.path, { force: true });
  }
}

export async function readLines(path: string): Promise<string[]> {
  try {
    return (await readFile(path, 'utf8')).split('\n').filter((line) => line !== '');
  } catch (thrown) {
    if (['ENOENT', 'ENOTDIR'].includes(systemErrorCode(thrown))) return [];
    throw thrown;
  }
}

export function parseLine(line: string | undefined): unknown {
  try {
    return JSON.parse(line ?? 'null') as unknown;
  } catch {
    return null;
  }
}

export async function fileSize(path: string): Promise<number | null> {
  try {
    return (await stat(path)).size;
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return null;
    throw thrown;
  }
}
