import { appendFile, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { fileExists } from '../../shared/base/files/read-file.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { FETCH_JOURNAL_FILE, FETCHED_JOURNAL_FILE, type Slice, SLICES } from '../format/pack-layout.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';

/** Identifies what the journal is of: a pack, or slices. The manifest, or slices.json, beside it must have this digest. */
const headSchema = z.discriminatedUnion('format', [
  z.strictObject({ format: z.literal('odmoe-fetching'), pack_digest: z.string() }),
  z.strictObject({ format: z.literal('odmoe-fetching-slices'), slices_digest: z.string() }),
]);
export type FetchJournalHead = z.infer<typeof headSchema>;

const recordSchema = z.strictObject({
  layer: z.int().min(0),
  expert: z.int().min(0),
  slice: z.enum(SLICES).optional(),
  lost: z.literal(true).optional(),
});

export interface FetchedExpert {
  layer: number;
  expert: number;
  /** Left out: the expert's lossless parts. */
  slice?: Slice | undefined;
}

/**
 * The journal of a pack, or of slices, that is being fetched: a line with its digest, then a line for each expert whose chunks are on the disk and had
 * the right checksums. A line with `lost` revokes an earlier one. A last line cut short by a crash is ignored.
 */
export class FetchJournal {
  private readonly path: string;
  private readonly finishedPath: string;

  constructor(directory: string, name = FETCH_JOURNAL_FILE) {
    this.path = join(directory, name);
    this.finishedPath = join(directory, FETCHED_JOURNAL_FILE);
  }

  /** Null if there is no journal, or if it does not say what it is of. */
  async read(): Promise<{ head: FetchJournalHead; fetched: FetchedExpert[] } | null> {
    const [first, ...rest] = await this.readLines();
    const head = headSchema.safeParse(parseLine(first));
    if (!head.success) return null;
    const fetched = new Map<string, FetchedExpert>();
    for (const line of rest) {
      const record = recordSchema.safeParse(parseLine(line));
      if (!record.success) continue;
      const { layer, expert, slice, lost } = record.data;
      const key = `${layer} ${expert} ${slice ?? ''}`;
      if (lost === true) fetched.delete(key);
      else fetched.set(key, { layer, expert, slice });
    }
    return { head: head.data, fetched: [...fetched.values()] };
  }

  /** Begins a new journal and replaces any other. @throws STORAGE_FULL, STORAGE_FAILED */
  async begin(directory: string, head: FetchJournalHead): Promise<void> {
    try {
      await writeFile(this.path, `${JSON.stringify(head)}\n`, { flush: true });
      await syncDirectory(directory);
    } catch (thrown) {
      throw writeFailure(thrown, this.path, null);
    }
  }

  /** @throws STORAGE_FULL, STORAGE_FAILED */
  async record({ layer, expert, slice }: FetchedExpert): Promise<void> {
    await this.append({ layer, expert, slice });
  }

  /** Records that the expert is not on the disk any more. @throws STORAGE_FULL, STORAGE_FAILED */
  async forget({ layer, expert, slice }: FetchedExpert): Promise<void> {
    await this.append({ layer, expert, slice, lost: true });
  }

  /** The fetch is over: the journal gets another name. */
  async finish(): Promise<void> {
    await rename(this.path, this.finishedPath);
  }

  /** The fetch goes on again: the journal gets its name back. */
  async reopen(): Promise<void> {
    if (await fileExists(this.finishedPath)) await rename(this.finishedPath, this.path);
  }

  private async append(record: z.infer<typeof recordSchema>): Promise<void> {
    try {
      // The newline at the begin ends a line that a crash may have cut short.
      await appendFile(this.path, `\n${JSON.stringify(record)}\n`, { flush: true });
    } catch (thrown) {
      throw writeFailure(thrown, this.path, null);
    }
  }

  private async readLines(): Promise<string[]> {
    try {
      return (await readFile(this.path, 'utf8')).split('\n').filter((line) => line !== '');
    } catch (thrown) {
      if (systemErrorCode(thrown) === 'ENOENT') return [];
      throw writeFailure(thrown, this.path, null);
    }
  }
}

function parseLine(line: string | undefined): unknown {
  try {
    return JSON.parse(line ?? 'null') as unknown;
  } catch {
    return null;
  }
}
