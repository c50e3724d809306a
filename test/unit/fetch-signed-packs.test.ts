import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { existsSync } from 'node:fs';
import { NodeTrust } from '../../engine/trust/node-trust.js';
import { allowPacks, certifyPeer, firstRoster, removePeer } from '../../engine/trust/roster-changes.js';
import { type Roster, signRoster } from '../../engine/trust/roster.js';
import { allowServedPack } from '../../main-node/enrolment/allow-packs.js';
import { EnrolmentDesk } from '../../main-node/enrolment/enrolment-desk.js';
import { keysService } from '../../main-node/enrolment/keys-service.js';
import { fetchManifest } from '../../packs/fetching/fetch-manifest.js';
import { PartialPack } from '../../packs/fetching/partial-pack.js';
import { PackServer } from '../../packs/fetching/pack-server.js';
import { packOfManifest, type Pack } from '../../packs/format/open-pack.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { openPackSource } from '../../shared/transport/node-clients.js';
import type { RpcServer } from '../../shared/transport/transport.js';
import { createAuthority, createNodeKey } from '../../shared/transport/trust/certificate.js';
import { openWorkerPack } from '../../worker-node/fetching/open-worker-pack.js';
import { PackFetch } from '../../worker-node/fetching/pack-fetch.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { ENVIRONMENT, RUNTIME } from '../wall.js';
import { MemoryState } from './enrolment-main.js';
import { FetchSetting, NETWORK, testPack } from './fetch-test-pack.js';
import { Lines } from './log-lines.js';
import { plainIdentity } from './plain-identity.js';
import { done } from './refusals.js';

const AUTHORITY = createAuthority('home');

describe('a worker of a cluster with an authority', () => {
  const setting = new FetchSetting();
  let pack: Pack;
  let state: MemoryState;
  let desk: EnrolmentDesk;
  let main: NodeTrust;
  let worker: NodeTrust;
  let server: RpcServer;
  /** Bytes of manifests and experts that main has given. */
  let given = 0;

  /** Lists a node in the roster of main. */
  function member(role: 'main' | 'worker', id: string, admission: 'listed' | 'not-removed'): NodeTrust {
    const key = createNodeKey();
    const entry = done(certifyPeer(AUTHORITY, state.roster, { role, id }, createPublicKey(key), 1));
    state.roster = entry.roster;
    return trustOf({ key, certificate: entry.certificate }, admission, entry.roster);
  }

  function trustOf(own: NodeTrust['own'], admission: 'listed' | 'not-removed', roster: Roster): NodeTrust {
    const signedRoster = signRoster(roster, AUTHORITY);
    const saveRoster = (): void => undefined;
    return new NodeTrust({
      cluster: 'home',
      authority: AUTHORITY.certificate,
      own,
      admission,
      signedRoster,
      saveRoster,
    });
  }

  /** A share that counts what it gives. */
  function counted(share: PackServer): Pick<PackServer, 'describe' | 'manifest' | 'read'> {
    async function* counting(pieces: AsyncIterable<{ bytes: Uint8Array }>) {
      for await (const piece of pieces) {
        given += piece.bytes.length;
        yield piece;
      }
    }
    return {
      describe: () => share.describe(),
      manifest: (...asked) => counting(share.manifest(...asked)),
      read: (...asked) => counting(share.read(...asked)),
    };
  }

  /** A worker that was let in, and lies. */
  async function hostileWorker(): Promise<RpcServer> {
    const liar = member('worker', 'liar', 'not-removed');
    const lying = await new GrpcTransport(RUNTIME, null, liar).serve({
      host: '127.0.0.1',
      port: 0,
      network: NETWORK,
      log: new Lines(),
      node: {
        identify: () => {
          throw new OdmoeError('TRUST_REFUSED', 'you were removed');
        },
      },
    });
    setting.users.push({ close: () => lying.stop() });
    return lying;
  }

  beforeEach(async () => {
    pack = await testPack();
    given = 0;
    state = new MemoryState(AUTHORITY);
    desk = new EnrolmentDesk(state, RUNTIME);
    main = member('main', 'box', 'listed');
    worker = member('worker', 'jetson-2', 'not-removed');
    main.takeRoster(signRoster(state.roster, AUTHORITY));
    const identity = plainIdentity({ id: 'box', role: 'ROLE_MAIN', cluster: 'home', packDigest: pack.packDigest });
    server = await new GrpcTransport(RUNTIME, null, main).serve({
      host: '127.0.0.1',
      port: 0,
      network: NETWORK,
      log: new Lines(),
      node: { identify: () => identity },
      pack: counted(new PackServer(pack, RUNTIME)),
      keys: keysService(desk, RUNTIME),
    });
    setting.users.push({ close: () => server.stop() });
  });

  const environment = () => ({ ...ENVIRONMENT, trust: worker, transport: new GrpcTransport(RUNTIME, null, worker) });
  const settings = (directory: string) =>
    testSettings('worker', directory, { cluster: 'home', mainAddress: server.address });

  it('asks for nothing of a pack that the authority has not signed, and begins when it has', async () => {
    const log = new Lines();
    const opening = openWorkerPack(settings(setting.directory), environment(), log, new AbortController().signal);
    const refused = (): boolean => log.warnings.length > 0 && log.all.some((line) => line.includes('has not signed'));
    await waitUntil('the pack is refused', refused);
    assert.ok(log.all.some((line) => line.includes(`the pack ${pack.packDigest.slice(0, 16)}`)));
    assert.deepEqual([given, existsSync(setting.directory)], [0, false]);
    await allowServedPack(desk, pack, null);
    const { partial } = await opening;
    assert.ok(partial !== null);
    setting.users.push(partial);
    assert.ok(given > 0);
    assert.equal(worker.roster?.count, state.roster.count, 'the worker has asked for the newest roster');
  });

  it('ends with the words of main when it was removed while it was away', async () => {
    const removed = done(removePeer(state.roster, 'jetson-2', Date.UTC(2026, 10, 27)));
    main.takeRoster(signRoster(removed, AUTHORITY));
    const opening = openWorkerPack(
      settings(setting.directory),
      environment(),
      new Lines(),
      AbortSignal.timeout(20_000),
    );
    const words = /^node jetson-2 was removed from "home" .*To come back: odmoe worker --rejoin$/;
    await assert.rejects(opening, (error) => {
      assert.ok(error instanceof OdmoeError);
      assert.equal(error.code, 'NODE_REMOVED');
      return words.test(error.message);
    });
  });

  it('is not ended by a worker that says in the place of main that it was removed', async () => {
    const hostile = await hostileWorker();
    const log = new Lines();
    const stop = new AbortController();
    const asked = { ...settings(setting.directory), mainAddress: hostile.address };
    const opening = openWorkerPack(asked, environment(), log, stop.signal);
    const rejected = assert.rejects(opening, /was stopped while it was starting/);
    await waitUntil('the lie has come', () => log.all.some((line) => line.includes('you were removed')));
    stop.abort();
    await rejected;
  });

  it('goes on with a pack that it has begun when a newer roster allows it, and stops when one does not', async () => {
    const source = openPackSource(new GrpcTransport(RUNTIME, null, worker), server.address);
    const manifest = await fetchManifest(source, pack.packDigest, new AbortController().signal);
    source.close();
    const partial = await PartialPack.begin(setting.directory, manifest, RUNTIME, packOfManifest);
    const fetch = new PackFetch(partial, settings(setting.directory), environment(), () => undefined, new Lines());
    setting.users.push(fetch);
    given = 0;
    fetch.takeMain(server.address);
    const arrival = fetch.awaitExpert(0, 1, new AbortController().signal);
    assert.ok(arrival !== null);
    await RUNTIME.sleep(100);
    assert.equal(given, 0);
    assert.match(fetch.status.fetchProblem, /has not signed the pack [0-9a-f]{16}, so nothing of it is fetched/);
    const allowed = allowPacks(state.roster, [pack.packDigest]);
    worker.takeRoster(signRoster(allowed, AUTHORITY));
    await arrival;
    assert.ok(given > 0);
    assert.equal(fetch.status.fetchProblem, '');
    const other = { ...firstRoster('home'), entries: allowed.entries, count: allowed.count + 1 };
    worker.takeRoster(signRoster(other, AUTHORITY));
    given = 0;
    const ended = new AbortController();
    const next = fetch.awaitExpert(0, 2, ended.signal);
    await RUNTIME.sleep(100);
    assert.equal(given, 0);
    ended.abort();
    await assert.rejects(next ?? Promise.resolve());
  });
});
