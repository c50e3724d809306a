import { SLICES } from '../../packs/format/pack-layout.js';
import assert from 'node:assert/strict';
import { cpSync, existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import { crc32c } from '../../native/index.js';
import { ExpertFetcher } from '../../packs/fetching/expert-fetcher.js';
import { PackPeers } from '../../packs/fetching/pack-peers.js';
import { PackServer } from '../../packs/fetching/pack-server.js';
import { PartialPack } from '../../packs/fetching/partial-pack.js';
import { expertExtents } from '../../packs/format/extents.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { FETCH_LOCK_FILE, MANIFEST_FILE } from '../../packs/format/pack-layout.js';
import type { PackSource } from '../../shared/transport/node-clients.js';
import { PackFetch } from '../../worker-node/fetching/pack-fetch.js';
import { PackMending } from '../../worker-node/fetching/pack-mending.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { ENVIRONMENT, RUNTIME } from '../wall.js';
import { FetchSetting, SILENT, testPack } from './fetch-test-pack.js';
import { assertWaits, type Closing, HeldWork, itWaitsForWork, leavesNothing } from './held-work.js';
import type { Connection } from '../../shared/transport/transport.js';
import type { PackPiece, ReadManifestRequest, ReadPackRequest } from '../../shared/wire/messages.js';

const READER = { host: 'reader', caller: null };

/** Begins work of a fetcher. */
type FetcherWork = (fetcher: ExpertFetcher, partial: PartialPack) => void;

const MAIN = '192.0.2.1:7600';

/** The source as calls over one connection. */
function connectionOf(source: PackSource): Connection {
  async function* pieces(request: object, signal: AbortSignal): AsyncGenerator<PackPiece> {
    const isRead = 'file' in request;
    const all = isRead
      ? source.read(request as ReadPackRequest, signal)
      : source.manifest(request as ReadManifestRequest, signal);
    for await (const bytes of all) yield { bytes };
  }
  return {
    call: (() => source.describe(0)) as unknown as Connection['call'],
    replies: ((_: object, request: object, { signal }: { signal: AbortSignal }) =>
      pieces(request, signal)) as unknown as Connection['replies'],
    close: () => source.close(),
  };
}

describe('closing the fetching waits for', () => {
  const setting = new FetchSetting();
  let pack: Pack;
  let work: HeldWork;
  let closed: string[];
  before(async () => (pack = await testPack()));
  beforeEach(() => {
    work = new HeldWork();
    closed = [];
  });

  /** A peer in this process that has the whole pack. Its answers are held back, also after it is closed. */
  function peer(address: string): PackSource {
    const share = new PackServer(pack, RUNTIME);
    const bytesOf = async function* (pieces: ReturnType<PackServer['read']>): AsyncGenerator<Uint8Array> {
      for await (const { bytes } of pieces) yield await work.whenLetGo(() => bytes);
    };
    return {
      describe: () => work.whenLetGo(() => share.describe()),
      read: (request, signal) => bytesOf(share.read(request, signal, READER)),
      manifest: (request, signal) => bytesOf(share.manifest(request, signal, READER)),
      close: () => void closed.push(address),
    };
  }

  function peers(runtime = RUNTIME, onDescribed = (): void => undefined): PackPeers {
    const { expertLayers: layers, experts } = pack.shape;
    const { packDigest } = pack;
    return new PackPeers({ packDigest, layers, experts, connect: peer, runtime, log: SILENT, onDescribed });
  }

  const beginPartial = (runtime = RUNTIME): Promise<PartialPack> =>
    PartialPack.begin(setting.directory, readFileSync(join(pack.directory, MANIFEST_FILE)), runtime);

  /** No other fetcher may use the directory at the same time. */
  const lock = (directory = setting.directory): string[] =>
    existsSync(join(directory, FETCH_LOCK_FILE)) ? ['the lock of the directory'] : [];

  /**
   * A fetcher in a separate directory that runs the work of `begin`. Its first `after` works with files and with main pass; the next one is
   * held back. Null: the fetcher ended before that.
   */
  async function fetching(
    begin: FetcherWork,
    after: number,
    hasEnded: (partial: PartialPack) => boolean,
  ): Promise<Closing | null> {
    const partial = await beginPartial(work.runtime());
    const asked = peers(work.runtime(), () => fetcher.peersChanged());
    const fetcher: ExpertFetcher = new ExpertFetcher({
      store: partial,
      peers: asked,
      crc32c,
      runtime: work.runtime(),
      log: SILENT,
      onFetched: () => undefined,
    });
    asked.setAddresses([MAIN], []);
    await waitUntil('main has described what it holds', () => asked.chooseWhole() !== null);
    work.holdNext({ after });
    begin(fetcher, partial);
    await waitUntil('work is held back, or over', () => work.underWay > 0 || hasEnded(partial));
    const closing = { close: () => fetcher.close(), letGo: () => work.letGo(), holds: () => lock() };
    if (work.underWay > 0) return closing;
    work.letGo();
    await fetcher.close();
    return null;
  }

  /** Closes the fetch at each step of the work of `begin`. */
  async function closeAtEachStep(
    ...[begin, hasEnded]: [FetcherWork, (partial: PartialPack) => boolean]
  ): Promise<void> {
    for (let after = 0; ; after += 1) {
      const isOver = await leavesNothing(async () => {
        const closing = await fetching(begin, after, hasEnded);
        if (closing !== null) await assertWaits(closing);
        return closing === null;
      });
      if (isOver) return assert.ok(after > 0, 'it has steps');
      rmSync(setting.directory, { recursive: true });
    }
  }

  async function asking(): Promise<Closing> {
    const asked = peers();
    work.holdNext({ works: 2 });
    asked.setAddresses([MAIN], ['192.0.2.2:7600']);
    // The peer that is removed here has not answered yet.
    asked.setAddresses([MAIN], []);
    assert.deepEqual([work.underWay, closed], [2, ['192.0.2.2:7600']]);
    const letGo = (): void => {
      assert.deepEqual([...new Set(closed)], ['192.0.2.2:7600', MAIN], 'connections end the questions');
      work.letGo();
    };
    return { close: () => asked.close(), letGo };
  }

  /** A worker that fetches, or mends its pack, from a main that is held back. */
  const environment = (): NodeEnvironment => ({
    ...ENVIRONMENT,
    runtime: work.runtime(),
    dataDirectory: setting.parent,
    transport: Object.assign(Object.create(ENVIRONMENT.transport) as NodeEnvironment['transport'], {
      connect: (address: string) => connectionOf(peer(address)),
    }),
  });
  const settings = () => testSettings('worker', pack.directory, { mainAddress: MAIN });

  async function fetchingWorker(): Promise<Closing> {
    const fetch = new PackFetch(await beginPartial(), settings(), environment(), () => undefined, SILENT);
    work.holdNext();
    fetch.takeMain(MAIN);
    assert.equal(work.underWay, 1);
    return { close: () => fetch.close(), letGo: () => work.letGo(), holds: lock };
  }

  /** `opened`: the directory for mended experts exists when the work is held back. */
  async function mending(opened: boolean): Promise<Closing> {
    const mending = new PackMending(pack, settings(), environment(), SILENT);
    const forgetting = (): Promise<void> => mending.forget(0, 0, SLICES);
    if (opened) await forgetting();
    work.holdNext();
    if (opened) mending.takeMain(MAIN);
    else void forgetting();
    await waitUntil('work is held back', () => work.underWay > 0);
    const directory = join(setting.parent, 'mended', `${pack.packDigest.slice(0, 16)}-${settings().id}`);
    const holds = (): string[] => (opened ? lock(directory) : []);
    return { close: () => mending.close(), letGo: () => work.letGo(), holds };
  }

  async function noting(): Promise<Closing> {
    const partial = await beginPartial(work.runtime());
    work.holdNext();
    void partial.record(0, 0);
    return { close: () => partial.close(), letGo: () => work.letGo(), holds: lock };
  }

  itWaitsForWork({
    'questions to peers, those it has left too': asking,
    'what a worker fetches': fetchingWorker,
    'the directory for experts that are mended': () => mending(false),
    'experts that are mended': () => mending(true),
    'a note in the journal, before the lock goes': noting,
  });

  it('each step of fetching an expert', () =>
    closeAtEachStep(
      (fetcher) => fetcher.need([{ layer: 0, expert: 0 }]),
      ({ held }) => held.has(0, 0),
    ));

  it('each step of fetching a file beside the experts', () =>
    closeAtEachStep(
      (fetcher, { held }) => {
        for (const { layer, expert } of pack.manifest.experts) held.add(layer, expert);
        const expertFiles = new Set(expertExtents(pack.manifest).map(({ file }) => file));
        const [, ...others] = pack.manifest.files.filter(({ name }) => !expertFiles.has(name));
        for (const { name } of others) cpSync(join(pack.directory, name), join(setting.directory, name));
        fetcher.peersChanged();
      },
      ({ isWhole }) => isWhole,
    ));

  it('each step of recording that an expert is wrong', () => {
    // The expert is fetched again at once, so what the pack holds does not say whether the record has been written.
    let recorded = false;
    return closeAtEachStep(
      (fetcher, { held }) => {
        recorded = false;
        held.add(0, 0);
        void fetcher.forget(0, 0).then(() => (recorded = true));
      },
      () => recorded,
    );
  });
});
