import { readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';

const recordSchema = z.strictObject({
  id: z.string(),
  role: z.enum(['main', 'shadow', 'worker']),
  pid: z.number().int().positive(),
  started_at: z.string(),
  command_line: z.string(),
});

/** A daemon's record, which `odmoe up` writes so that `odmoe down` finds exactly this process. */
export type ProcessRecord = z.infer<typeof recordSchema>;

const RECORD_SUFFIX = '.pid';

export function logPath(directory: string, id: string): string {
  return join(directory, `${id}.log`);
}

/** Reads the records of a cluster, by the id of their node. A file that is no valid record is reported and skipped. */
export async function readRecords(
  directory: string,
  onUnreadable: (path: string, reason: string) => void,
): Promise<Map<string, ProcessRecord>> {
  const records = new Map<string, ProcessRecord>();
  for (const name of await listOrNone(directory)) {
    if (!name.endsWith(RECORD_SUFFIX)) continue;
    const path = join(directory, name);
    try {
      const record = await readRecord(path);
      records.set(record.id, record);
    } catch (error) {
      onUnreadable(path, error instanceof Error ? error.message : String(error));
    }
  }
  return records;
}

/** Writes the record completely or not at all. */
export async function writeRecord(directory: string, record: ProcessRecord): Promise<void> {
  const path = recordPath(directory, record.id);
  try {
    await makeDirectories(directory, 0o700);
    await writeFile(`${path}.new`, `${JSON.stringify(record)}\n`, { mode: 0o600 });
    await rename(`${path}.new`, path);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new OdmoeError('STORAGE_FAILED', `cannot write ${path}: ${reason}`, { cause: error });
  }
}

/** Removes the record of that node if it belongs to that process. The record of another process stays. */
export async function removeRecord(directory: string, id: string, pid: number): Promise<void> {
  const path = recordPath(directory, id);
  if ((await readRecord(path).catch(() => null))?.pid === pid) await rm(path, { force: true });
}

async function readRecord(path: string): Promise<ProcessRecord> {
  return recordSchema.parse(JSON.parse(await readFile(path, 'utf8')));
}

function recordPath(directory: string, id: string): string {
  return join(directory, `${id}${RECORD_SUFFIX}`);
}

async function listOrNone(directory: string): Promise<string[]> {
  try {
    return (await readdir(directory)).sort();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
    throw error;
  }
}
