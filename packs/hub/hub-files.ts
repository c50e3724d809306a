import { z } from 'zod';
import type { HubClient } from './hub-client.js';
import type { HubRequest } from './hub-failure.js';
import { type HubRepository, type HubSnapshot, isCommit } from './hub-repository.js';

/** The checksum by which the hub names a file's content: of large files their SHA-256, of small ones git's name of a blob. */
export interface FileDigest {
  readonly kind: 'sha256' | 'git-blob';
  /** Hexadecimal. */
  readonly hex: string;
}

export interface HubFile {
  /** Path in the repository, with slashes. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly digest: FileDigest;
}

const revisionSchema = z.looseObject({ sha: z.string().refine(isCommit) });

const entrySchema = z.looseObject({
  type: z.string(),
  path: z.string(),
  size: z.int().min(0).optional(),
  oid: z.string().optional(),
  lfs: z.looseObject({ oid: z.string(), size: z.int().min(0) }).nullish(),
});
const listingSchema = z.array(entrySchema);
type Entry = z.infer<typeof entrySchema>;

const SHA256 = /^[0-9a-f]{64}$/;
/** Most pages of a listing; a page has up to 1000 files. */
const PAGES_LIMIT = 1000;

/** The commit that a branch, tag or commit of a repository names now. @throws as HubClient.askJson */
export async function findSnapshot(hub: HubClient, repository: HubRepository, revision: string): Promise<HubSnapshot> {
  const { id } = repository;
  const request: HubRequest = { id, revision, file: null };
  const { value } = await hub.askJson(`/api/models/${id}/revision/${encodeURIComponent(revision)}`, request);
  const found = revisionSchema.safeParse(value);
  if (!found.success) throw hub.strange(request, 'answers with something that is no description of a model');
  return { ...repository, commit: found.data.sha };
}

/** All files of a snapshot, in the hub's order. @throws as HubClient.askJson */
export async function listFilesOf(hub: HubClient, { id, commit }: HubSnapshot): Promise<HubFile[]> {
  const request: HubRequest = { id, revision: commit, file: null };
  const files: HubFile[] = [];
  let path: string | null = `/api/models/${id}/tree/${commit}?recursive=true`;
  for (let page = 0; path !== null && page < PAGES_LIMIT; page += 1) {
    const { value, nextPath } = await hub.askJson(path, request);
    const listing = listingSchema.safeParse(value);
    if (!listing.success) throw hub.strange(request, 'answers with something that is no list of files');
    for (const entry of listing.data) {
      if (entry.type !== 'file') continue;
      const file = fileOf(entry);
      if (file === null) throw hub.strange(request, `gives no checksum of ${JSON.stringify(entry.path)}`);
      files.push(file);
    }
    path = nextPath;
  }
  return files;
}

function fileOf({ path, size, oid, lfs }: Entry): HubFile | null {
  if (lfs !== null && lfs !== undefined) {
    const hex = lfs.oid.replace(/^sha256:/, '');
    return SHA256.test(hex) ? { path, sizeBytes: lfs.size, digest: { kind: 'sha256', hex } } : null;
  }
  if (size === undefined || oid === undefined || !isCommit(oid)) return null;
  return { path, sizeBytes: size, digest: { kind: 'git-blob', hex: oid } };
}
