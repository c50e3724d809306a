import { dirname } from 'node:path';
import {
  BecameWholeError,
  fetchPlace,
  PartialPack,
  reopenFetch,
  wasFetched,
} from '../../packs/fetching/partial-pack.js';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type RuledSlices, ruledSlices, slicesRead } from '../../engine/loading/open-for-quality.js';
import { openSlicesOfMain } from '../../packs/fetching/slices-fetch.js';
import { hasGivenSlices, type PartialSlices } from '../../packs/fetching/partial-slices.js';
import type { Slices } from '../../packs/slices/open-slices.js';
import type { SlicedQuality } from '../../shared/decisions/slices/plan-readings.js';
import { qualityText } from '../../shared/settings/quality.js';
import { directoryExists } from '../../shared/base/files/make-directories.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { anyPackOfManifest, packOfManifest, type Pack } from '../../packs/format/open-pack.js';
import type { FoundMain } from '../../engine/fetching/await-main.js';
import { CONNECTION_FAILURES, inDigestDirectory, MainAsker } from '../../engine/fetching/main-asker.js';

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
  const asker = new MainAsker(settings, environment, log, abandoned);
  const opener = new PackOpener(settings, environment, asker, log, abandoned);
  const find = (): Promise<FoundMain> => asker.awaitMain();
  return modelPath === null ? opener.openByDigest(await find()) : opener.openOrBegin(modelPath, find);
}

/** Finds, opens or begins the pack of one worker. */
class PackOpener {
  constructor(
    private readonly settings: NodeSettings,
    private readonly environment: NodeEnvironment,
    private readonly asker: MainAsker,
    private readonly log: Logger,
    private readonly abandoned: AbortSignal,
  ) {}

  /** Opens the pack in a default directory. */
  async openByDigest(main: FoundMain): Promise<WorkerPack> {
    const { dataDirectory } = this.environment;
    const open = (directory: string): Promise<WorkerPack> => this.openOrBegin(directory, async () => main);
    return inDigestDirectory(dataDirectory, main.identity.packDigest, open, this.log);
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
      if (source !== null) return this.whole(source, main);
    }
    const resumed =
      place === 'new' ? null : await runtime.outside(() => PartialPack.resume(directory, runtime, this.parse));
    if (resumed !== null) return this.fetchInto(resumed, main);
    const found = await main();
    return this.fetchInto(await this.begin(directory, found), () => Promise.resolve(found));
  }

  /** The worker fetches into this pack what it needs. The pack is closed if its slices cannot be opened. */
  private async fetchInto(partial: PartialPack, main: () => Promise<FoundMain>): Promise<WorkerPack> {
    const { pack: source } = partial;
    const { quality } = this.settings.main;
    this.log.info('fetching what is needed of the pack', {
      directory: source.directory,
      model: source.name,
      digest: source.packDigest,
      quality: qualityText(quality),
    });
    if (quality.kind === 'exact') return { source, partial, sliced: null, fetched: null };
    try {
      return { source, partial, ...(await this.beginSlices(source, quality, await main())) };
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
    const { runtime } = this.environment;
    const accept = (slices: Slices): RuledSlices => ruledSlices(slices, quality);
    const wanted = { pack, set: slicesRead(quality), accept };
    const fetched = await this.asker.ask(
      main,
      { name: 'slices', passing: CONNECTION_FAILURES },
      (source, { address }) => {
        const mayFetch = (digest: string): Promise<void> => this.asker.requireAllowed('slices', digest, address);
        return openSlicesOfMain({ ...wanted, mayFetch }, source, runtime, this.abandoned);
      },
    );
    return { fetched, sliced: accept(fetched.slices) };
  }

  /** A pack that a worker fetched has its slices from main, too. A pack that was given, and slices that were given, are only read. */
  private async whole(source: Pack, main: () => Promise<FoundMain>): Promise<WorkerPack> {
    const { environment } = this;
    const { runtime } = environment;
    const { quality } = this.settings.main;
    const { directory } = source;
    const fetched = await runtime.outside(() => wasFetched(directory));
    if (quality.kind === 'exact') {
      return { source, partial: fetched ? PartialPack.ofWhole(source, runtime) : null, sliced: null, fetched: null };
    }
    if (fetched && !(await runtime.outside(() => hasGivenSlices(directory)))) {
      return this.fetchInto(PartialPack.ofWhole(source, runtime), main);
    }
    const sliced = await runtime.outside(() => environment.slicesForQuality(source, quality));
    return { source, partial: null, sliced, fetched: null };
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
      "the directory of the model does not exist: the worker fetches what it needs of main's pack into it",
      {
        directory,
      },
    );
  }

  private async begin(directory: string, main: FoundMain): Promise<PartialPack> {
    const manifest = await this.asker.manifestOf(main);
    const { runtime } = this.environment;
    return runtime.outside(() => PartialPack.begin(directory, manifest, runtime, this.parse));
  }

  /** Sliced experts need no lossless ones beside them. */
  private get parse(): typeof packOfManifest {
    return this.settings.main.quality.kind === 'exact' ? packOfManifest : anyPackOfManifest;
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
}
