import { homedir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import {
  BecameWholeError,
  fetchManifest,
  fetchPlace,
  PartialPack,
  reopenFetch,
  wasFetched,
} from '../../engine/fetching/index.js';
import { openServedPack } from '../../engine/loading/index.js';
import type { NodeSettings } from '../../shared/config/node-settings.js';
import { OdmoeError, toOdmoeError } from '../../shared/errors/index.js';
import type { Logger } from '../../shared/log/index.js';
import type { Pack } from '../../shared/pack/open-pack.js';
import { openPackSource } from '../../shared/rpc/index.js';
import { LockHeldError } from '../../shared/storage/process-lock.js';
import { findMain, type FoundMain } from './find-main.js';

/** What a worker serves from: a pack, or one that it fetches what it needs of. */
export interface WorkerPack {
  source: Pack;
  /** null: the pack was not fetched, and is whole. */
  partial: PartialPack | null;
}

/** Workers of one machine that may fetch one pack by default, each into a directory of its own. */
const DEFAULT_DIRECTORIES_LIMIT = 64;
/** Hexadecimal digits of the digest in a directory's name. */
const DIGEST_DIGITS = 16;
/** Pause before main is asked again for its manifest. */
const MANIFEST_RETRY_MS = 1000;

/**
 * The pack of the directory that the settings name, or else of one in the user's data directory. Where there is none yet the worker
 * waits for main and begins to fetch main's.
 * @throws as openServedPack; LockHeldError while another worker fetches into the directory; STORAGE_FULL, STORAGE_FAILED
 */
export async function openWorkerPack(settings: NodeSettings, log: Logger): Promise<WorkerPack> {
  const { modelPath } = settings;
  if (modelPath === null) return openByDigest(settings, await findMain(settings, log), log);
  return openOrBegin(modelPath, settings, () => findMain(settings, log), log);
}

/** The first directory of the digest's that is whole or that no other worker is fetching into. */
async function openByDigest(settings: NodeSettings, main: FoundMain, log: Logger): Promise<WorkerPack> {
  const parent = join(dataDirectory(), 'packs');
  const name = main.identity.packDigest.slice(0, DIGEST_DIGITS);
  for (let number = 1; number <= DEFAULT_DIRECTORIES_LIMIT; number += 1) {
    const directory = join(parent, number === 1 ? name : `${name}-${number}`);
    try {
      return await openOrBegin(directory, settings, async () => main, log);
    } catch (thrown) {
      if (!(thrown instanceof LockHeldError)) throw thrown;
      log.debug('another worker fetches into the directory', { directory });
    }
  }
  throw new OdmoeError(
    'STORAGE_FAILED',
    `${parent}: ${DEFAULT_DIRECTORIES_LIMIT} workers fetch the pack already; give this one its own --model`,
  );
}

async function openOrBegin(
  directory: string,
  settings: NodeSettings,
  main: () => Promise<FoundMain>,
  log: Logger,
): Promise<WorkerPack> {
  try {
    return await openAsFound(directory, settings, main, log);
  } catch (thrown) {
    if (!(thrown instanceof BecameWholeError)) throw thrown;
    log.debug('another worker has made the pack whole', { directory });
    return await openAsFound(directory, settings, main, log);
  }
}

async function openAsFound(
  directory: string,
  settings: NodeSettings,
  main: () => Promise<FoundMain>,
  log: Logger,
): Promise<WorkerPack> {
  const place = await fetchPlace(directory);
  if (place === 'other') {
    const source = await openUndamaged(directory, log);
    if (source !== null) return { source, partial: (await wasFetched(directory)) ? PartialPack.ofWhole(source) : null };
  }
  const resumed = place === 'new' ? null : await PartialPack.resume(directory);
  const partial = resumed ?? (await PartialPack.begin(directory, await manifestOf(await main(), settings, log)));
  const { packDigest, name } = partial.pack;
  log.info('fetching what is needed of the pack', { directory, model: name, digest: packDigest });
  return { source: partial.pack, partial };
}

/** Null when files are missing or cut short of a pack that a worker had fetched: they are to be fetched again. */
async function openUndamaged(directory: string, log: Logger): Promise<Pack | null> {
  try {
    return await openServedPack(directory);
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    if (error.code !== 'PACK_CORRUPT' || !(await reopenFetch(directory))) throw thrown;
    log.warn('the fetched pack is damaged; what is missing is fetched again', { directory, error });
    return null;
  }
}

/** $XDG_DATA_HOME/odmoe, or ~/.local/share/odmoe. */
export function dataDirectory(environment: NodeJS.ProcessEnv = process.env): string {
  const configured = environment['XDG_DATA_HOME'];
  // The XDG specification: a relative path there is to be ignored.
  const base = configured?.startsWith('/') === true ? configured : join(homedir(), '.local', 'share');
  return join(base, 'odmoe');
}

/** Main's manifest; waits while main does not give it. */
async function manifestOf(main: FoundMain, settings: NodeSettings, log: Logger): Promise<Buffer> {
  for (let current = main; ; current = await findMain(settings, log)) {
    const { packDigest } = current.identity;
    // Another pack has another default directory.
    if (settings.modelPath === null && packDigest !== main.identity.packDigest) throw changedMeanwhile();
    const source = openPackSource(current.address, settings.network);
    try {
      return await fetchManifest(source, packDigest, new AbortController().signal);
    } catch (thrown) {
      log.warn('main does not give its manifest', { main: current.address, error: toOdmoeError(thrown) });
    } finally {
      source.close();
    }
    await delay(MANIFEST_RETRY_MS);
  }
}

function changedMeanwhile(): OdmoeError {
  return new OdmoeError('NODE_REFUSED', 'main was restarted with another pack meanwhile; start the worker again');
}
