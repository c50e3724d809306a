import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { PackSource } from '../../shared/transport/node-clients.js';
import type { PackDescription } from '../../shared/wire/messages.js';
import { HeldExperts } from '../format/held-experts.js';
import { type Slice, slicesOfSet } from '../format/pack-layout.js';
import type { Crc32c } from './download-expert.js';
import { ExpertFetcher, type FetchProgress } from './expert-fetcher.js';
import { fetchSlicesManifest } from './fetch-manifest.js';
import { PackPeers } from './pack-peers.js';
import { PartialSlices, type WantedSlices } from './partial-slices.js';

/** Longest time for main's description of its pack. */
const DESCRIBE_TIMEOUT_MS = 3000;

/**
 * Opens the slices of main's pack that are fetched into the directory of `wanted.pack`, and begins to fetch them where there are none. Main says
 * which slices they are, so that no other peer can give others. `set` may grow later: what is there already is kept. `mayFetch`: asked before any
 * byte of new slices is fetched; it throws if they must not be.
 * @throws PACK_INCOMPLETE if main has no slices, or not those that are missing here; NODE_REFUSED if it has another pack; the errors of the source, of fetchSlicesManifest and of PartialSlices
 */
export async function openSlicesOfMain(
  wanted: Omit<WantedSlices, 'digest'> & { readonly mayFetch?: (digest: string) => Promise<void> },
  main: Pick<PackSource, 'describe' | 'manifest'>,
  runtime: Runtime,
  signal: AbortSignal,
): Promise<PartialSlices> {
  const { packDigest } = wanted.pack;
  const described = await main.describe(DESCRIBE_TIMEOUT_MS);
  if (described.packDigest !== packDigest) {
    throw new OdmoeError('NODE_REFUSED', `main holds another pack (${described.packDigest}, not ${packDigest})`);
  }
  const digest = described.slices?.digest;
  if (digest === undefined) {
    throw new OdmoeError(
      'PACK_INCOMPLETE',
      'main has no slices of its pack: make them with "odmoe pack --slices", and start main again',
    );
  }
  const ofMain = { ...wanted, digest };
  const resumed = await runtime.outside(() => PartialSlices.resume(ofMain, runtime));
  if (resumed?.isWhole === true) return resumed;
  if (wanted.set === 'both' && !hasAllLower(described, wanted.pack.shape)) {
    await resumed?.close();
    throw new OdmoeError(
      'PACK_INCOMPLETE',
      'main serves the upper slices of its pack alone, and the lower ones are needed, too: start main with the quality of this worker',
    );
  }
  if (resumed !== null) return resumed;
  await wanted.mayFetch?.(digest);
  const bytes = await fetchSlicesManifest(main, { packDigest, slicesDigest: digest }, signal);
  return runtime.outside(() => PartialSlices.begin(ofMain, bytes, runtime));
}

function hasAllLower({ slices }: PackDescription, { expertLayers, experts }: ModelShape): boolean {
  return HeldExperts.fromBits(expertLayers, experts, slices?.heldLower ?? new Uint8Array()).isComplete;
}

export interface SlicesFetchOptions {
  partial: PartialSlices;
  connect: (address: string) => PackSource;
  crc32c: Crc32c;
  requireRoom?: (directory: string, bytes: number) => Promise<void>;
  runtime: Runtime;
  log: Logger;
  /** Called when a slice of an expert has been fetched. */
  onFetched: () => void;
}

/**
 * Fetches slices of experts: the upper ones first, with which the experts can be used, and then the lower ones if they are wanted. A load that
 * waits for a lower slice gets it at once.
 */
export class SlicesFetch {
  private readonly partial: PartialSlices;
  private readonly upper: SliceFetcher;
  /** Null: only upper slices are fetched. */
  private readonly lower: SliceFetcher | null;
  private needed: readonly ExpertId[] = [];

  constructor(options: SlicesFetchOptions) {
    this.partial = options.partial;
    const { onFetched } = options;
    const fetched = (): void => {
      this.needLower();
      onFetched();
    };
    const wanted = slicesOfSet(options.partial.slices.opened);
    this.lower = wanted.includes('lower') ? openFetcher('lower', options, onFetched) : null;
    this.upper = openFetcher('upper', options, fetched);
  }

  /** As PackPeers.setAddresses. */
  setAddresses(mainAddresses: readonly string[], others: readonly string[]): void {
    for (const { peers } of this.fetchers) peers.setAddresses(mainAddresses, others);
  }

  /** Replaces the list of experts whose slices are fetched while no load waits. */
  need(places: readonly ExpertId[]): void {
    this.needed = places;
    this.lower?.fetcher.need([]);
    this.upper.fetcher.need(places);
    this.needLower();
  }

  /** Every needed expert is on the disk, with all slices that are wanted. */
  get isReady(): boolean {
    const { held, slices } = this.partial;
    const wanted = slicesOfSet(slices.opened);
    return this.needed.every(({ layer, expert }) => wanted.every((slice) => held[slice].has(layer, expert)));
  }

  /** Progress of the upper slices of the needed experts. With these, all of them can be used. */
  get upperProgress(): FetchProgress {
    return this.upper.fetcher.progress;
  }

  /** Progress of the lower slices, of which none is needed before the upper ones are there; null: they are not wanted. */
  get lowerProgress(): FetchProgress | null {
    return this.lower?.fetcher.progress ?? null;
  }

  /** Progress of both. Lower slices count as needed when the upper ones are there. */
  get progress(): FetchProgress {
    const [upper, lower] = [this.upperProgress, this.lowerProgress];
    if (lower === null) return upper;
    return {
      neededBytes: upper.neededBytes + lower.neededBytes,
      heldBytes: upper.heldBytes + lower.heldBytes,
      receivedBytes: upper.receivedBytes + lower.receivedBytes,
      ready: this.isReady,
      problem: upper.problem === '' ? lower.problem : upper.problem,
    };
  }

  /** As ExpertFetcher.awaitExpert, for one slice. */
  awaitSlice({ layer, expert }: ExpertId, slice: Slice, signal: AbortSignal): Promise<void> | null {
    return this.of(slice).awaitExpert(layer, expert, signal);
  }

  /** The slice's bytes on the disk are wrong: it is fetched again. @throws LockHeldError, STORAGE_FULL, STORAGE_FAILED */
  forget({ layer, expert }: ExpertId, slice: Slice): Promise<void> {
    return this.of(slice).forget(layer, expert);
  }

  /** Resolves when no fetch is in progress any more. Fetched slices stay on the disk. */
  async close(): Promise<void> {
    for (const { fetcher } of this.fetchers) await fetcher.close();
    await this.partial.close();
  }

  private get fetchers(): readonly SliceFetcher[] {
    return this.lower === null ? [this.upper] : [this.upper, this.lower];
  }

  private of(slice: Slice): ExpertFetcher {
    if (slice === 'upper') return this.upper.fetcher;
    if (this.lower !== null) return this.lower.fetcher;
    throw new OdmoeError('INTERNAL', 'a lower slice is asked for, and only upper slices are fetched');
  }

  private needLower(): void {
    if (this.upper.fetcher.progress.ready) this.lower?.fetcher.need(this.needed);
  }
}

interface SliceFetcher {
  fetcher: ExpertFetcher;
  peers: PackPeers;
}

function openFetcher(
  slice: Slice,
  { partial, connect, crc32c, requireRoom, runtime, log }: SlicesFetchOptions,
  onFetched: () => void,
): SliceFetcher {
  const { packDigest, shape } = partial.pack;
  const peers = new PackPeers({
    packDigest,
    layers: shape.expertLayers,
    experts: shape.experts,
    slice: { slice, digest: partial.digest },
    connect,
    runtime,
    log,
    onDescribed: () => fetcher.peersChanged(),
  });
  const store = partial.storeOf(slice);
  const room = requireRoom === undefined ? {} : { requireRoom };
  const fetcher: ExpertFetcher = new ExpertFetcher({ store, peers, crc32c, ...room, runtime, log, onFetched });
  return { fetcher, peers };
}
