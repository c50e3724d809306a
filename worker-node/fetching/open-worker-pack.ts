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
import { fetchRoster } from '../../engine/trust/key-renewal.js';
import { PackGate } from '../../engine/trust/pack-gate.js';
import { requireWanted } from '../../engine/daemon/run-daemon.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { type RuledSlices, ruledSlices, slicesRead } from '../../engine/loading/open-for-quality.js';
import { openSlicesOfMain } from '../../packs/fetching/slices-fetch.js';
import { hasGivenSlices, type PartialSlices } from '../../packs/fetching/partial-slices.js';
import type { Slices } from '../../packs/slices/open-slices.js';
import type { SlicedQuality } from '../../shared/decisions/slices/plan-readings.js';
import { qualityText } from '../../shared/settings/quality.js';
import { directoryExists } from '../../shared/base/files/make-directories.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { anyPackOfManifest, packOfManifest, type Pack } from '../../packs/format/open-pack.js';
import { LockHeldError } from '../../shared/base/files/process-lock.js';
import { awaitMain, type FoundMain } from './await-main.js';
import { openPackSource, type PackSource } from '../../shared/transport/node-clients.js';

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
/** Pause before main is asked again. */
const ASK_AGAIN_MS = 1000;

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
    const fetched = await this.askMain(
      main,
      { name: 'slices', passing: CONNECTION_FAILURES },
      (source, { address }) => {
        const mayFetch = (digest: string): Promise<void> => this.requireAllowed('slices', digest, address);
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
    const manifest = await this.manifestOf(main);
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

  /** Gets main's manifest; waits until main sends it. */
  private manifestOf(main: FoundMain): Promise<Buffer> {
    const { modelPath } = this.settings;
    return this.askMain(
      main,
      { name: 'manifest', passing: MANIFEST_FAILURES },
      async (source, { identity, address }) => {
        // A pack with another digest has another default directory.
        if (modelPath === null && identity.packDigest !== main.identity.packDigest) throw changedMeanwhile();
        await this.requireAllowed('pack', identity.packDigest, address);
        return fetchManifest(source, identity.packDigest, this.abandoned);
      },
    );
  }

  /**
   * Throws TRUST_REFUSED if the authority has not signed what main names. Main opens its stream, which brings rosters, to workers that have a pack,
   * so a worker without one asks for the newest roster itself.
   */
  private async requireAllowed(what: 'pack' | 'slices', digest: string, address: string): Promise<void> {
    const { trust, transport } = this.environment;
    const gate = new PackGate(trust, what, digest);
    if (gate.refusal === null || trust === null) return;
    await fetchRoster(trust, transport, address, this.abandoned);
    const { refusal } = gate;
    if (refusal !== null) throw new OdmoeError('TRUST_REFUSED', refusal);
  }

  /** Asks main, and asks again after a failure that may pass; the other failures are thrown. `name`: what main is to give. */
  private async askMain<Given>(
    main: FoundMain,
    { name, passing }: { name: string; passing: ReadonlySet<ErrorCode> },
    ask: (source: PackSource, main: FoundMain) => Promise<Given>,
  ): Promise<Given> {
    const { runtime, transport } = this.environment;
    for (let current = main; ; current = await this.awaitMain(current)) {
      const source = openPackSource(transport, current.address);
      try {
        return await ask(source, current);
      } catch (thrown) {
        requireWanted(this.abandoned);
        const error = toOdmoeError(thrown);
        if (!passing.has(error.code)) throw error;
        this.log.warn(`main does not give its ${name}`, { main: current.address, error });
      } finally {
        source.close();
      }
      await runtime.sleep(ASK_AGAIN_MS, this.abandoned);
    }
  }
}

/**
 * Main did not answer, has no time now, or has not let its pack be signed yet: it may answer the next call. Nothing on this machine fails with these
 * codes.
 */
const CONNECTION_FAILURES: ReadonlySet<ErrorCode> = new Set([
  'NO_MAIN',
  'WORKER_LOST',
  'TIMEOUT',
  'CANCELLED',
  'QUEUE_FULL',
  'TRUST_REFUSED',
]);
/**
 * Main refuses if it was started again with another pack. Before it is asked again it names the pack that it has now. Nothing has been written here yet,
 * so a fault of a disk is main's, and may pass.
 */
const MANIFEST_FAILURES: ReadonlySet<ErrorCode> = new Set([
  ...CONNECTION_FAILURES,
  'NODE_REFUSED',
  'STORAGE_FAILED',
  'INTERNAL',
]);

function changedMeanwhile(): OdmoeError {
  return new OdmoeError('NODE_REFUSED', 'main was restarted with another pack meanwhile; start the worker again');
}
