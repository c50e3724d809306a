import { appendFile, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { systemErrorCode } from '../../shared/model/read-file.js';
import { FETCH_JOURNAL_FILE } from '../../shared/pack/pack-layout.js';
import { writeFailure } from '../../shared/storage/storage-error.js';
import { syncDirectory } from '../packing/pack-file.js';

/** What the journal is of; the manifest beside it must be that one. */
const headSchema = z.strictObject({ format: z.literal('odmoe-fetching'), pack_digest: z.string() });
const recordSchema = z.strictObject({ layer: z.int().min(0), expert: z.int().min(0) });

export type FetchedExpert = z.infer<typeof recordSchema>;

/**
 * The journal of a pack that is being fetched: a line with the pack's digest, then a line for each expert whose chunks are on the
 * disk and had the right checksums. A last line cut short by a crash is as if never written.
 */
export class FetchJournal {
  private readonly path: string;

  constructor(directory: string) {
    this.path = join(directory, FETCH_JOURNAL_FILE);
  }

  /** Null when there is none, or none that says of which pack it is. */
  async read(): Promise<{ packDigest: string; fetched: FetchedExpert[] } | null> {
    const [first, ...rest] = await this.readLines();
    const head = headSchema.safeParse(parseLine(first));
    if (!head.success) return null;
    const records = rest.map((line) => recordSchema.safeParse(parseLine(line)));
    return {
      packDigest: head.data.pack_digest,
      fetched: records.flatMap((record) => (record.success ? [record.data] : [])),
    };
  }

  /** Begins a journal in place of any other. @throws STORAGE_FULL, STORAGE_FAILED */
  async begin(directory: string, packDigest: string): Promise<void> {
    const head = { format: 'odmoe-fetching', pack_digest: packDigest };
    try {
      await writeFile(this.path, `${JSON.stringify(head)}\n`, { flush: true });
      await syncDirectory(directory);
    } catch (thrown) {
      throw writeFailure(thrown, this.path, null);
    }
  }

  /** @throws STORAGE_FULL, STORAGE_FAILED */
  async record({ layer, expert }: FetchedExpert): Promise<void> {
    try {
      // The newline in front closes a line that a crash may have cut short.
      await appendFile(this.path, `\n${JSON.stringify({ layer, expert })}\n`, { flush: true });
    } catch (thrown) {
      throw writeFailure(thrown, this.path, null);
    }
  }

  async remove(): Promise<void> {
    await rm(this.path, { force: true });
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
