import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fetchPlace, PartialPack } from '../../packs/fetching/partial-pack.js';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import { MANIFEST_FILE, type Slice, SLICES } from '../../packs/format/pack-layout.js';
import type { Pack } from '../../packs/format/open-pack.js';
import type { ExpertSupply } from '../loader/expert-loader.js';
import type { ProspectFetch } from './prospect-fetch.js';
import { packOfManifest } from '../../packs/format/open-pack.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';

/** A load waits this long for main to send an expert that is damaged here. Then the worker reports that it cannot run the expert. */
export const MEND_LIMIT_MS = 10_000;

/** Hexadecimal digits of the digest in a directory's name. */
const DIGEST_DIGITS = 16;

/** Brings experts into the directory of mended ones. */
export type MendingFetch = ExpertSupply & Pick<ProspectFetch, 'takeMain' | 'status'> & { close(): Promise<void> };

/**
 * Fetches experts from main that are damaged in a pack which the worker may only read. They go into a directory of the worker. The directory is
 * made when the first damage is found; its experts are also used at later starts. A subclass says what of an expert is fetched.
 */
export abstract class Mending implements ExpertSupply {
  /** The slices of experts that are read from that directory; an expert that is not sliced counts as both of its slices. */
  private readonly mended = new Set<string>();
  private opening: Promise<MendingFetch> | null = null;
  protected fetch: MendingFetch | null = null;
  private mainAddress: string | null = null;
  private closing: Promise<void> | null = null;

  constructor(
    protected readonly pack: Pack,
    protected readonly settings: NodeSettings,
    protected readonly environment: NodeEnvironment,
    protected readonly log: Logger,
  ) {}

  /** Main treats this worker as one with a complete pack. */
  readonly isPartial = false;

  get status(): { fetchReceivedBytes: number } {
    return { fetchReceivedBytes: this.fetch?.status.fetchReceivedBytes ?? 0 };
  }

  takeMain(reportedAddress: string): void {
    this.mainAddress = reportedAddress;
    this.fetch?.takeMain(reportedAddress);
  }

  /** Main sends prospects only to workers with a partial pack. */
  takeProspect(): void {
    return undefined;
  }

  abstract find(layer: number, expert: number, slices: readonly Slice[]): ExpertSource | null;

  /** Null: the expert is on the disk. Rejects with PACK_CORRUPT when main does not send it in time; the fetch continues. */
  awaitExpert(layer: number, expert: number, signal: AbortSignal, slices: readonly Slice[]): Promise<void> | null {
    const wanted = this.mendedOf(layer, expert).filter((slice) => slices.includes(slice));
    if (wanted.length === 0) return null;
    const fetch = requirePresent(this.fetch, 'an expert that is mended has a directory.');
    const limit = new AbortController();
    const arrival = fetch.awaitExpert(layer, expert, AbortSignal.any([signal, limit.signal]), wanted);
    return arrival === null ? null : this.inTime(arrival, limit, signal);
  }

  async forget(layer: number, expert: number, slices: readonly Slice[]): Promise<void> {
    const fetch = await this.open();
    const again = this.mendedOf(layer, expert).filter((slice) => slices.includes(slice));
    if (again.length > 0) await fetch.forget(layer, expert, again);
    for (const slice of slices) this.mended.add(`${layer} ${expert} ${slice}`);
  }

  /** Idempotent. */
  close(): Promise<void> {
    return (this.closing ??= this.closeFetch());
  }

  private async closeFetch(): Promise<void> {
    const opened = await this.opening?.catch(() => null);
    await opened?.close();
  }

  private async inTime(arrival: Promise<void>, limit: AbortController, signal: AbortSignal): Promise<void> {
    const timer = waitForPeer(this.environment.runtime, MEND_LIMIT_MS, () => limit.abort());
    try {
      await arrival;
    } catch (thrown) {
      if (signal.aborted || !limit.signal.aborted) throw thrown;
      const problem = this.fetch?.status.fetchProblem ?? '';
      const why = problem === '' ? '' : ` (${problem})`;
      const what = `it is damaged in ${this.pack.directory}, and main has not brought it yet${why}`;
      throw new OdmoeError('PACK_CORRUPT', what);
    } finally {
      timer.cancel();
    }
  }

  private open(): Promise<MendingFetch> {
    if (this.closing !== null) return Promise.reject(new OdmoeError('CANCELLED', 'the worker is stopping'));
    this.opening ??= this.openDirectory().catch((thrown: unknown) => {
      this.opening = null;
      throw thrown;
    });
    return this.opening;
  }

  /** The slices of the expert that are read from the directory of mended ones. */
  protected mendedOf(layer: number, expert: number): Slice[] {
    return SLICES.filter((slice) => this.mended.has(`${layer} ${expert} ${slice}`));
  }

  /** Begins to fetch into the directory, or goes on with it. */
  protected abstract openFetch(directory: string): Promise<MendingFetch>;

  protected async openPartial(directory: string, parse = packOfManifest): Promise<PartialPack> {
    const { runtime } = this.environment;
    const place = await runtime
      .outside(() => fetchPlace(directory))
      .catch((thrown: unknown) => {
        if (toOdmoeError(thrown).code !== 'MODEL_NOT_FOUND') throw thrown;
        const problem = 'a file stands in this path, which is for experts that are fetched again; rename or remove it';
        throw new OdmoeError('STORAGE_FAILED', `${directory}: ${problem}`);
      });
    if (place === 'other') {
      const { quality } = this.settings.main;
      return PartialPack.ofWhole(await this.environment.openPack(directory, quality), runtime);
    }
    const resumed = place === 'new' ? null : await runtime.outside(() => PartialPack.resume(directory, runtime, parse));
    if (resumed !== null) return resumed;
    return runtime.outside(async () => {
      const manifest = await readFile(join(this.pack.directory, MANIFEST_FILE));
      return PartialPack.begin(directory, manifest, runtime, parse);
    });
  }

  private async openDirectory(): Promise<MendingFetch> {
    const { dataDirectory } = this.environment;
    const name = `${this.pack.packDigest.slice(0, DIGEST_DIGITS)}-${this.settings.id}`;
    const directory = join(dataDirectory, 'mended', name);
    const fetch = await this.openFetch(directory);
    this.log.warn('experts that are damaged in the pack are fetched from main', { directory });
    if (this.mainAddress !== null) fetch.takeMain(this.mainAddress);
    this.fetch = fetch;
    return fetch;
  }
}
