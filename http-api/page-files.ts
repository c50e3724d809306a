import { createHash } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { extname, join } from 'node:path';

/** Limits for the page's files: larger files, and files above this number, are not served. */
export const PAGE_FILE_LIMIT_BYTES = 4 * 1024 * 1024;
export const MAX_PAGE_FILES = 64;

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.ico': 'image/x-icon',
  '.woff2': 'font/woff2',
  '.webmanifest': 'application/manifest+json',
};

export interface PageFile {
  readonly type: string;
  readonly bytes: Buffer;
  readonly etag: string;
}

/** The files of the built page by name; empty: the page was not built. Each file is read once. */
export async function readPageFiles(directory: string): Promise<ReadonlyMap<string, PageFile>> {
  const files = new Map<string, PageFile>();
  for (const name of await namesIn(directory)) {
    const type = TYPES[extname(name)];
    const path = join(directory, name);
    if (type === undefined || files.size >= MAX_PAGE_FILES) continue;
    const found = await stat(path);
    if (!found.isFile() || found.size > PAGE_FILE_LIMIT_BYTES) continue;
    const bytes = await readFile(path);
    const etag = `"${createHash('sha256').update(bytes).digest('hex').slice(0, ETAG_DIGITS)}"`;
    files.set(name, { type, bytes, etag });
  }
  return files;
}

const ETAG_DIGITS = 32;

async function namesIn(directory: string): Promise<string[]> {
  try {
    return (await readdir(directory)).sort();
  } catch {
    return [];
  }
}
