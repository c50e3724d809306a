import { appendFile, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { systemErrorCode } from '../../shared/model/read-file.js';
import { codecLevelSchema, codecSchema, finishedFileSchema, type FinishedFile } from '../format/manifest.js';
import { JOURNAL_FILE } from '../format/pack-layout.js';
import { syncDirectory } from './pack-file.js';

/** What a pack is made of and with; a journal of anything else is of no use. */
export const packingPlanSchema = z.strictObject({
  format: z.literal('odmoe-packing'),
  odmoe_version: z.string(),
  name: z.string(),
  codec: codecSchema,
  codec_level: codecLevelSchema,
  shards: z.int(),
  /** Of the checkpoint's files: their names, sizes, times of change, headers. */
  source_identity: z.string(),
});
export type PackingPlan = z.infer<typeof packingPlanSchema>;

/**
 * The journal of a pack that is being made: a line with the plan, then a line for each finished file.
 * A last line cut short by a crash is as if never written.
 */
export class PackingJournal {
  private readonly path: string;

  private constructor(
    directory: string,
    readonly finished: Map<string, FinishedFile>,
  ) {
    this.path = join(directory, JOURNAL_FILE);
  }

  /** Opens the journal if it is of the same plan; files that do not have their recorded size count as unfinished. */
  static async resume(directory: string, plan: PackingPlan): Promise<PackingJournal | null> {
    const lines = await readLines(join(directory, JOURNAL_FILE));
    const found = packingPlanSchema.safeParse(parseLine(lines[0]));
    if (!found.success || JSON.stringify(found.data) !== JSON.stringify(plan)) return null;
    const finished = new Map<string, FinishedFile>();
    for (const line of lines.slice(1)) {
      const record = finishedFileSchema.safeParse(parseLine(line));
      if (!record.success) continue;
      const { name, size_bytes: size } = record.data.file;
      if ((await fileSize(join(directory, name))) === size) finished.set(name, record.data);
    }
    return new PackingJournal(directory, finished);
  }

  /** What an unfinished pack in the directory is made with; null where there is none. */
  static async planIn(directory: string): Promise<PackingPlan | null> {
    const [line] = await readLines(join(directory, JOURNAL_FILE));
    return packingPlanSchema.safeParse(parseLine(line)).data ?? null;
  }

  /** Begins a journal in place of any other. */
  static async begin(directory: string, plan: PackingPlan): Promise<PackingJournal> {
    await writeFile(join(directory, JOURNAL_FILE), `${JSON.stringify(plan)}\n`, { flush: true });
    await syncDirectory(directory);
    return new PackingJournal(directory, new Map());
  }

  async record(finished: FinishedFile): Promise<void> {
    // The newline in front closes a line that a crash may have cut short.
    await appendFile(this.path, `\n${JSON.stringify(finished)}\n`, { flush: true });
    this.finished.set(finished.file.name, finished);
  }

  async remove(): Promise<void> {
    await rm(this.path, { force: true });
  }
}

async function readLines(path: string): Promise<string[]> {
  try {
    return (await readFile(path, 'utf8')).split('\n').filter((line) => line !== '');
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return [];
    throw thrown;
  }
}

function parseLine(line: string | undefined): unknown {
  try {
    return JSON.parse(line ?? 'null') as unknown;
  } catch {
    return null;
  }
}

async function fileSize(path: string): Promise<number | null> {
  try {
    return (await stat(path)).size;
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return null;
    throw thrown;
  }
}
