import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fetchPlace, PartialPack } from '../../packs/fetching/partial-pack.js';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import { MANIFEST_FILE } from '../../packs/format/pack-layout.js';
import type { Pack } from '../../packs/format/open-pack.js';
import type { ExpertSupply } from '../loader/expert-loader.js';
import { PackFetch } from './pack-fetch.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';

/** A load waits this long for main to send an expert that is damaged here. Then the worker reports that it cannot run the expert. */
export const MEND_LIMIT_MS = 10_000;

/** Hexadecimal digits of the digest in a directory's name. */
const DIGEST_DIGITS = 16;

/**
 * Fetches experts from main that are damaged in a pack which the worker may only read. They go into a directory of the worker. The directory is
 * made when the first damage is found; its experts are also used at later starts.
 */
export class PackMending implements ExpertSupply {
  /** Experts that are read from that directory: layer * experts + expert. */
  private readonly mended = new Set<number>();
  private opening: Promise<PackFetch> | null = null;
  private fetch: PackFetch | null = null;
  private mainAddress: string | null = null;
  private closing: Promise<void> | null = null;

  constructor(
    private readonly pack: Pack,
    private readonly settings: NodeSettings,
    private readonly environment: NodeEnvironment,
    private readonly log: Logger,
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

  find(layer: number, expert: number): ExpertSource | null {
    return this.mended.has(this.key(layer, expert)) ? (this.fetch?.find(layer, expert) ?? null) : null;
  }

  /** Null: the expert is on the disk. Rejects with PACK_CORRUPT when main does not send it in time; the fetch continues. */
  awaitExpert(layer: number, expert: number, signal: AbortSignal): Promise<void> | null {
    if (!this.mended.has(this.key(layer, expert))) return null;
    const fetch = requirePresent(this.fetch, 'an expert that is mended has a directory.');
    const limit = new AbortController();
    const arrival = fetch.awaitExpert(layer, expert, AbortSignal.any([signal, limit.signal]));
    return arrival === null ? null : this.inTime(arrival, limit, signal);
  }

  async forget(layer: number, expert: number): Promise<void> {
    const key = this.key(layer, expert);
    const fetch = await this.open();
    if (this.mended.has(key)) await fetch.forget(layer, expert);
    this.mended.add(key);
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
      throw new OdmoeError('PACK_CORRUPT', `it is damaged in ${this.pack.directory}, and main has not brought it yet`);
    } finally {
      timer.cancel();
    }
  }

  private open(): Promise<PackFetch> {
    if (this.closing !== null) return Promise.reject(new OdmoeError('CANCELLED', 'the worker is stopping'));
    this.opening ??= this.openDirectory().catch((thrown: unknown) => {
      this.opening = null;
      throw thrown;
    });
    return this.opening;
  }

  private async openDirectory(): Promise<PackFetch> {
    const { dataDirectory } = this.environment;
    const name = `${this.pack.packDigest.slice(0, DIGEST_DIGITS)}-${this.settings.id}`;
    const directory = join(dataDirectory, 'mended', name);
    const partial = await this.openPartial(directory);
    this.log.warn('experts that are damaged in the pack are fetched from main', { directory });
    const fetch = new PackFetch(partial, this.settings, this.environment, () => undefined, this.log);
    if (this.mainAddress !== null) fetch.takeMain(this.mainAddress);
    this.fetch = fetch;
    return fetch;
  }

  private async openPartial(directory: string): Promise<PartialPack> {
    const { runtime } = this.environment;
    const place = await runtime.outside(() => fetchPlace(directory));
    if (place === 'other') return PartialPack.ofWhole(await this.environment.openPack(directory), runtime);
    const resumed = place === 'new' ? null : await runtime.outside(() => PartialPack.resume(directory, runtime));
    if (resumed !== null) return resumed;
    return runtime.outside(async () => {
      const manifest = await readFile(join(this.pack.directory, MANIFEST_FILE));
      return PartialPack.begin(directory, manifest, runtime);
    });
  }

  private key(layer: number, expert: number): number {
    return layer * this.pack.shape.experts + expert;
  }
}
