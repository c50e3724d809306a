import { dirname, join } from 'node:path';
import {
  BecameWholeError,
  fetchPlace,
  PartialPack,
  reopenFetch,
  wasFetched,
} from '../../packs/fetching/partial-pack.js';
import { fetchManifest } from '../../packs/fetching/fetch-manifest.js';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { requireWanted } from '../../engine/daemon/run-daemon.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type RuledSlices, ruledSlices, slicesForQuality, slicesRead } from '../../engine/loading/open-for-quality.js';
import { openSlicesOfMain } from '../../packs/fetching/slices-fetch.js';
import type { PartialSlices } from '../../packs/fetching/partial-slices.js';
import type { SlicedQuality } from '../../shared/decisions/slices/plan-readings.js';
import { qualityText } from '../../shared/settings/quality.js';
import { directoryExists } from '../../shared/base/files/make-directories.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { anyPackOfManifest, packOfManifest, type Pack } from '../../packs/format/open-pack.js';
import { LockHeldError } from '../../shared/base/files/process-lock.js';
import { awaitMain, type FoundMain } from './await-main.js';
import { openPackSource } from '../../shared/transport/node-clients.js';

/** The pack that a worker serves from: a complete pack, or a partial one whose experts the worker fetches. */
export interface WorkerPack {
  source: Pack;
  /** null: the pack was not fetched and is complete. */
  partial: PartialPack | null;
  /** The slices with which the worker computes experts; null: it computes them exactly. */
  sliced: RuledSlices | null;
  /** Those slices, if the worker fetches them from main. */
  fetched: PartialSlices | null;
}

/** Most workers of one machine that may fetch one pack by default, each into its own directory. */
const DEFAULT_DIRECTORIES_LIMIT = 64;
/** Hexadecimal digits of the digest in a directory's name. */
const DIGEST_DIGITS = 16;
/** Pause before main is asked for its manifest again. */
const MANIFEST_RETRY_MS = 1000;

/**
 * Opens the pack in the directory that the settings name, or one in the user's data directory. If there is no pack yet, the worker waits for
 * main and begins to fetch main's pack.
 * @throws CANCELLED when the start is abandoned; as openServedPack; LockHeldError while another worker fetches into the directory; STORAGE_FULL, STORAGE_FAILED
 */
export async function openWorkerPack(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  abandoned: AbortSignal,
): Promise<WorkerPack> {
  const { modelPath } = settings;
  const find = (known: FoundMain | null = null): Promise<FoundMain> =>
    awaitMain(settings, environment, log, abandoned, known);
  const opener = new PackOpener(settings, environment, find, log, abandoned);
  return modelPath === null ? opener.openByDigest(await find()) : opener.openOrBegin(modelPath, find);
}

/** Finds, opens or begins the pack of one worker. */
class PackOpener {
  constructor(
    private readonly settings: NodeSettings,
    private readonly environment: NodeEnvironment,
    private readonly awaitMain: (known: FoundMain) => Promise<FoundMain>,
    private readonly log: Logger,
    private readonly abandoned: AbortSignal,
  ) {}

  /** Opens the first directory of the digest that has a complete pack or into which no other worker fetches. */
  async openByDigest(main: FoundMain): Promise<WorkerPack> {
    const parent = join(this.environment.dataDirectory, 'packs');
    const name = main.identity.packDigest.slice(0, DIGEST_DIGITS);
    for (let number = 1; number <= DEFAULT_DIRECTORIES_LIMIT; number += 1) {
      const directory = join(parent, number === 1 ? name : `${name}-${number}`);
      try {
        return await this.openOrBegin(directory, async () => main);
      } catch (thrown) {
        if (!(thrown instanceof LockHeldError)) throw thrown;
        this.log.debug('another worker fetches into the directory', { directory });
      }
    }
    throw new OdmoeError(
      'STORAGE_FAILED',
      `${parent}: ${DEFAULT_DIRECTORIES_LIMIT} workers fetch the pack already; give this one its own --model`,
    );
  }

  async openOrBegin(directory: string, main: () => Promise<FoundMain>): Promise<WorkerPack> {
    try {
      return await this.openAsFound(directory, main);
    } catch (thrown) {
      if (!(thrown instanceof BecameWholeError)) throw thrown;
      this.log.debug('another worker has made the pack whole', { directory });
      return await this.openAsFound(directory, main);
    }
  }

  private async openAsFound(directory: string, main: () => Promise<FoundMain>): Promise<WorkerPack> {
    const { runtime } = this.environment;
    const place = await runtime.outside(() => fetchPlace(directory));
    if (place === 'new' && directory === this.settings.modelPath) await this.warnOfNewPlace(directory);
    if (place === 'other') {
      const source = await this.openUndamaged(directory);
      if (source !== null) return this.whole(source, directory);
    }
    const { quality } = this.settings.main;
    const parse = quality.kind === 'exact' ? packOfManifest : anyPackOfManifest;
    const resumed = place === 'new' ? null : await runtime.outside(() => PartialPack.resume(directory, runtime, parse));
    const found = resumed === null || quality.kind !== 'exact' ? await main() : null;
    const partial = resumed ?? (await this.begin(directory, requirePresent(found, 'a fetch begins at main.')));
    const { packDigest, name } = partial.pack;
    this.log.info('fetching what is needed of the pack', {
      directory,
      model: name,
      digest: packDigest,
      quality: qualityText(quality),
    });
    if (quality.kind === 'exact') return { source: partial.pack, partial, sliced: null, fetched: null };
    try {
      return {
        source: partial.pack,
        partial,
        ...(await this.beginSlices(partial.pack, quality, requirePresent(found, 'main gives slices.'))),
      };
    } catch (thrown) {
      await partial.close();
      throw thrown;
    }
  }

  /** Opens main's slices in the directory of the pack, or begins to fetch them; waits until main describes them. */
  private async beginSlices(
    pack: Pack,
    quality: SlicedQuality,
    main: FoundMain,
  ): Promise<Pick<WorkerPack, 'sliced' | 'fetched'>> {
    const { runtime, transport } = this.environment;
    for (let current = main; ; current = await this.awaitMain(current)) {
      const source = openPackSource(transport, current.address);
      try {
        const fetched = await openSlicesOfMain(pack, slicesRead(quality), source, runtime, this.abandoned);
        return { fetched, sliced: await this.ruled(fetched, quality) };
      } catch (thrown) {
        const error = toOdmoeError(thrown);
        if (thrown instanceof LockHeldError || !isOfPeer(error)) throw thrown;
        requireWanted(this.abandoned);
        this.log.warn('main does not give its slices', { main: current.address, error });
      } finally {
        source.close();
      }
      await runtime.sleep(MANIFEST_RETRY_MS, this.abandoned);
    }
  }

  private async ruled(fetched: PartialSlices, quality: SlicedQuality): Promise<RuledSlices> {
    try {
      return ruledSlices(fetched.slices, quality);
    } catch (thrown) {
      await fetched.close();
      throw thrown;
    }
  }

  private async whole(source: Pack, directory: string): Promise<WorkerPack> {
    const { runtime } = this.environment;
    const { quality } = this.settings.main;
    if (quality.kind !== 'exact') {
      const sliced = await runtime.outside(() => slicesForQuality(source, quality));
      return { source, partial: null, sliced, fetched: null };
    }
    const fetched = await runtime.outside(() => wasFetched(directory));
    return { source, partial: fetched ? PartialPack.ofWhole(source, runtime) : null, sliced: null, fetched: null };
  }

  /** A mistyped name also looks like a new place. So the log names the place before anything waits, and missing parent folders are not created. */
  private async warnOfNewPlace(directory: string): Promise<void> {
    const { runtime } = this.environment;
    if (await runtime.outside(() => directoryExists(directory))) return;
    const parent = dirname(directory);
    if (!(await runtime.outside(() => directoryExists(parent)))) {
      throw new OdmoeError(
        'CONFIG_INVALID',
        `the model ${directory} cannot be fetched: ${parent} does not exist; correct the path, make that directory, or leave the model out to fetch into ${this.environment.dataDirectory}`,
      );
    }
    this.log.warn(
      'the directory of the model does not exist: the worker fetches the experts that it needs from main into it',
      {
        directory,
      },
    );
  }

  private async begin(directory: string, main: FoundMain): Promise<PartialPack> {
    const manifest = await this.manifestOf(main);
    const { runtime } = this.environment;
    const parse = this.settings.main.quality.kind === 'exact' ? packOfManifest : anyPackOfManifest;
    return runtime.outside(() => PartialPack.begin(directory, manifest, runtime, parse));
  }

  /** Null when a fetched pack lacks files or has files that are cut short: then they must be fetched again. */
  private async openUndamaged(directory: string): Promise<Pack | null> {
    const { runtime } = this.environment;
    try {
      return await this.environment.openPack(directory, this.settings.main.quality);
    } catch (thrown) {
      const error = toOdmoeError(thrown);
      if (error.code !== 'PACK_CORRUPT' || !(await runtime.outside(() => reopenFetch(directory)))) throw thrown;
      this.log.warn('the fetched pack is damaged; what is missing is fetched again', { directory, error });
      return null;
    }
  }

  /** Gets main's manifest; waits until main sends it. */
  private async manifestOf(main: FoundMain): Promise<Buffer> {
    const { modelPath } = this.settings;
    const { runtime, transport } = this.environment;
    for (let current = main; ; current = await this.awaitMain(current)) {
      const { packDigest } = current.identity;
      // A pack with another digest has another default directory.
      if (modelPath === null && packDigest !== main.identity.packDigest) throw changedMeanwhile();
      const source = openPackSource(transport, current.address);
      try {
        return await fetchManifest(source, packDigest, this.abandoned);
      } catch (thrown) {
        requireWanted(this.abandoned);
        this.log.warn('main does not give its manifest', { main: current.address, error: toOdmoeError(thrown) });
      } finally {
        source.close();
      }
      await runtime.sleep(MANIFEST_RETRY_MS, this.abandoned);
    }
  }
}

/** The peer did not answer, or not as it should; asking again may help. */
function isOfPeer({ code }: OdmoeError): boolean {
  return !['PACK_INCOMPLETE', 'NODE_REFUSED', 'MODEL_UNSUPPORTED', 'USAGE', 'STORAGE_FULL', 'STORAGE_FAILED'].includes(
    code,
  );
}

function changedMeanwhile(): OdmoeError {
  return new OdmoeError('NODE_REFUSED', 'main was restarted with another pack meanwhile; start the worker again');
}
