import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { ARRIVING_SUFFIX } from '../../packs/hub/remote-model.js';
import { isSlicesOnly } from '../../packs/format/manifest.js';
import { isPackDirectory, openAnyPack } from '../../packs/format/open-pack.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { isWholePack, packDirectories } from './pack-places.js';

/** A pack, or what is there of one, in the directory of packs. */
export interface LocalPack {
  /** Name of its directory. */
  entry: string;
  directory: string;
  /** Name of the model; null: the pack is not finished. */
  name: string | null;
  /** Digest of its manifest; null as for `name`. */
  digest: string | null;
  /** Bytes that it takes on the disk, with what has arrived for it. */
  diskBytes: number;
  state: PackState;
  /** The fault of a damaged pack; null: none. */
  damage: string | null;
}

/** unfinished: it is being pulled, packed or fetched, or that was interrupted. slices: it has experts in fewer bits alone. */
export type PackState = 'whole' | 'slices' | 'unfinished' | 'damaged';

const BLOCK_BYTES = 512;

/** All packs in a directory of packs, by name. Their weights are not read. @throws STORAGE_FAILED */
export async function localPacks(packs: string): Promise<LocalPack[]> {
  const entries = await packDirectories(packs);
  const names = new Set(entries.map((entry) => (entry.endsWith(ARRIVING_SUFFIX) ? entry.slice(0, -ARRIVING_SUFFIX.length) : entry)));
  const found: LocalPack[] = [];
  for (const entry of [...names].sort()) {
    const directory = join(packs, entry);
    const isArriving = entries.includes(entry + ARRIVING_SUFFIX);
    // Other directories are nobody's pack.
    if (!isArriving && !(await isPackDirectory(directory))) continue;
    const diskBytes = (await usedBytes(directory)) + (await usedBytes(directory + ARRIVING_SUFFIX));
    found.push({ entry, directory, diskBytes, ...(await contentsOf(directory)) });
  }
  return found;
}

async function contentsOf(directory: string): Promise<Pick<LocalPack, 'name' | 'digest' | 'state' | 'damage'>> {
  if (!(await isWholePack(directory))) return { name: null, digest: null, state: 'unfinished', damage: null };
  try {
    const pack = await openAnyPack(directory);
    const state = isSlicesOnly(pack.manifest) ? 'slices' : 'whole';
    return { name: pack.name, digest: pack.packDigest, state, damage: null };
  } catch (thrown) {
    return { name: null, digest: null, state: 'damaged', damage: toOdmoeError(thrown).message };
  }
}

/** Bytes on the disk of all files below a directory, without holes; 0 if it does not exist. */
async function usedBytes(directory: string): Promise<number> {
  const names = await readdir(directory, { recursive: true, encoding: 'utf8' }).catch(() => []);
  let bytes = 0;
  for (const name of names) {
    const found = await stat(join(directory, name)).catch(() => null);
    if (found?.isFile() === true) bytes += found.blocks * BLOCK_BYTES;
  }
  return bytes;
}

/** The packs that a user means by a repository's name, a directory's name or the begin of a digest. Pure. */
export function packsNamed(packs: readonly LocalPack[], word: string): LocalPack[] {
  const prefix = `${word.replace('/', '--')}--`;
  const isDigest = /^[0-9a-f]{8,64}$/.test(word);
  return packs.filter(
    ({ entry, name, digest }) =>
      entry === word || name === word || entry.startsWith(prefix) || (isDigest && digest?.startsWith(word) === true),
  );
}
