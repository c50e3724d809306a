import { access, constants } from 'node:fs/promises';
import { homedir, tmpdir, userInfo } from 'node:os';
import { join, resolve } from 'node:path';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import { makeDirectories } from '../shared/base/files/make-directories.js';
import type { Checkpoint } from './checkpoint/checkpoint.js';
import { openSourceCheckpoint } from './gguf/open-source-checkpoint.js';
import { fileExists } from '../shared/base/files/read-file.js';
import { isPackDirectory, openPack } from './format/open-pack.js';
import { odmoeVersion } from '../shared/base/files/odmoe-version.js';
import { MANIFEST_FILE, PACK_FORMAT_VERSION } from './format/pack-layout.js';
import { withPeerDeadline } from '../shared/base/runtime/peer-wait.js';
import type { Runtime } from '../shared/base/runtime/runtime.js';
import { DEFAULT_CODEC, DEFAULT_SHARDS, packCheckpoint } from './packing/pack-checkpoint.js';
import { NATIVE_PACKING_TOOLS } from './packing/native-tools.js';
import { LockHeldError } from '../shared/base/files/process-lock.js';
import { sourceIdentity } from './packing/source-identity.js';

/** Longest wait for another process that packs the same checkpoint into the cache, and the interval of the checks. */
const OTHER_PACKER_WAIT_MS = 30 * 60 * 1000;
const OTHER_PACKER_POLL_MS = 200;
/** Hexadecimal digits of the key in a cached pack's directory name. */
const KEY_DIGITS = 16;

/**
 * The directory of a pack of the model: the given one if it is a pack, else one packed from the checkpoint into a cache. Later calls find it
 * again as long as the checkpoint's files do not change.
 * @param cacheDirectory null: $XDG_CACHE_HOME/odmoe/packs, ~/.cache/odmoe/packs, or the temporary directory, the first that can be written
 * @param signal cancels the packing, which the next call continues
 * @param onWarning called where it packs, as by packCheckpoint
 * @throws as openModelSource and packCheckpoint
 */
export async function packForServing(
  directory: string,
  cacheDirectory: string | null,
  runtime: Runtime,
  onProgress?: (doneBytes: number, totalBytes: number) => void,
  signal?: AbortSignal,
  onWarning?: (warning: string) => void,
): Promise<string> {
  const absolute = resolve(directory);
  if (await isPackDirectory(absolute)) return (await openPack(absolute)).directory;
  const checkpoint = await openSourceCheckpoint(absolute);
  const target = join(await usableCache(cacheDirectory), await cacheName(checkpoint));
  return withPeerDeadline(runtime, OTHER_PACKER_WAIT_MS, async (hasPassed) => {
    for (;;) {
      if (await isWholePack(target)) return target;
      try {
        await packCheckpoint(
          absolute,
          target,
          {
            codec: DEFAULT_CODEC,
            shards: DEFAULT_SHARDS,
            name: checkpoint.name,
            onDamagedPack: 'replace',
            ...(onProgress && { onProgress }),
            ...(signal && { signal }),
            ...(onWarning && { onWarning }),
          },
          NATIVE_PACKING_TOOLS,
        );
        return target;
      } catch (thrown) {
        if (!(thrown instanceof LockHeldError) || hasPassed()) throw thrown;
        await runtime.sleep(OTHER_PACKER_POLL_MS);
        if (signal?.aborted === true)
          throw new OdmoeError('CANCELLED', 'interrupted while another process packs the model');
      }
    }
  });
}

/** A damaged pack in the cache is treated as absent: only the cache owns it, and it is packed again. */
async function isWholePack(target: string): Promise<boolean> {
  if (!(await fileExists(join(target, MANIFEST_FILE)))) return false;
  try {
    await openPack(target);
    return true;
  } catch (thrown) {
    if (thrown instanceof OdmoeError && thrown.code === 'PACK_CORRUPT') return false;
    throw thrown;
  }
}

async function cacheName(checkpoint: Checkpoint): Promise<string> {
  const name = checkpoint.name.replaceAll(/[^\w.-]/g, '_');
  const version = odmoeVersion();
  const { codec } = DEFAULT_CODEC;
  return `${name}-${(await sourceIdentity(checkpoint)).slice(0, KEY_DIGITS)}-${version}-v${PACK_FORMAT_VERSION}-${codec}`;
}

/** The first candidate that can be made. If none can, throws the error of the last one. */
async function usableCache(cacheDirectory: string | null): Promise<string> {
  const candidates = cacheDirectory === null ? defaultCaches() : [resolve(cacheDirectory)];
  let failure: unknown = null;
  for (const candidate of candidates) {
    try {
      await makeDirectories(candidate, 0o700);
      await access(candidate, constants.W_OK);
      return candidate;
    } catch (thrown) {
      failure = thrown;
    }
  }
  const reason = failure instanceof Error ? failure.message : String(failure);
  throw new OdmoeError(
    'STORAGE_FAILED',
    `no directory for packed models can be written (${candidates.join(', ')}: ${reason}); set XDG_CACHE_HOME to one that can`,
  );
}

function defaultCaches(): string[] {
  const base = process.env.XDG_CACHE_HOME;
  // The name contains the user's id, because all users share the temporary directory.
  const temporary = join(tmpdir(), `odmoe-${userInfo().uid}`, 'packs');
  const home = base !== undefined && base.startsWith('/') ? base : join(homedir(), '.cache');
  return [join(home, 'odmoe', 'packs'), temporary];
}
