import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import type { Pass } from '../../native/index.js';
import { NodeTrust } from '../../engine/trust/node-trust.js';
import {
  certifyPeer,
  firstRoster,
  PREVIOUS_KEY_MS,
  removePeer,
  renewPeer,
  withoutPreviousKeys,
} from '../../engine/trust/roster-changes.js';
import { type Roster, signRoster } from '../../engine/trust/roster.js';
import { rosterTaker } from '../../engine/trust/take-roster.js';
import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { identifyPeer, joinMain, openWorkerStream } from '../../shared/transport/node-clients.js';
import type { RpcServer, RpcServerOptions } from '../../shared/transport/transport.js';
import { createAuthority, createNodeKey } from '../../shared/transport/trust/certificate.js';
import type { OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import type { NodeIdentity, NodeStatus } from '../../shared/wire/messages.js';
import { Predictor } from '../../shadow-node/predictor/predictor.js';
import { ShadowService } from '../../shadow-node/rpc/shadow-service.js';
import { WorkerLinks } from '../../shadow-node/rpc/worker-links.js';
import { WorkerSessions } from '../../worker-node/rpc/worker-sessions.js';
import { TestLog } from '../integration/harness/test-log.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { RUNTIME } from '../wall.js';
import { identity, membershipOf, type TestMembership } from './membership-setting.js';
import { plainShape } from './plain-shape.js';
import { ScriptedModel } from './scripted-shadow-model.js';
import { TestSlots, testService } from './worker-test-slots.js';
import { done } from './refusals.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 5000, executeTimeoutMs: 5000, reconnectDelayMs: 20 };
const JOIN_TIMEOUT_MS = 5000;
const NOW_MS = Date.UTC(2026, 10, 25, 10, 2);
const SHAPE = plainShape({ expertLayers: 4, experts: 8, hiddenSize: 4 });
const AUTHORITY = createAuthority('home');
const REMOVED = 'node jetson-2 was removed from "home" (2026-11-25 10:02 UTC). To come back: odmoe worker --rejoin';

type Role = 'main' | 'shadow' | 'worker';

/** Main, shadow and worker of a cluster with an authority, each with its real sockets. */
class Home {
  readonly log = new TestLog();
  /** The roster that lists all three. */
  roster = firstRoster('home');
  readonly trusts = new Map<Role, NodeTrust>();
  /** Ends of shadow's streams to the worker. */
  readonly ends: (OdmoeError | null)[] = [];
  private readonly certificates = new Map<Role, OwnCertificate>();
  private readonly closers: (() => Promise<unknown>)[] = [];

  constructor() {
    for (const [role, id] of [
      ['main', 'box'],
      ['shadow', 'helper'],
      ['worker', 'jetson-2'],
    ] as const) {
      const key = createNodeKey();
      const entry = certifyPeer(AUTHORITY, this.roster, { role, id }, createPublicKey(key), NOW_MS);
      if (isRefusal(entry)) assert.fail(entry.refusal);
      this.roster = entry.roster;
      this.certificates.set(role, { key, certificate: entry.certificate });
    }
  }

  /** Trust of a node that has seen this roster. */
  trust(role: Role, roster: Roster = this.roster): NodeTrust {
    const own = this.certificates.get(role);
    assert.ok(own !== undefined);
    const trust = new NodeTrust({
      cluster: 'home',
      authority: AUTHORITY.certificate,
      own,
      admission: role === 'worker' ? 'not-removed' : 'listed',
      signedRoster: signRoster(roster, AUTHORITY),
      saveRoster: () => undefined,
    });
    this.trusts.set(role, trust);
    return trust;
  }

  count(role: Role): number {
    return this.trusts.get(role)?.roster?.count ?? 0;
  }

  async worker(port = 0, trust = this.trust('worker')): Promise<RpcServer> {
    const own = inHome(identity('jetson-2'));
    const log = this.log.logger('worker');
    const experts = testService(new TestSlots(1), 8);
    const sessions = new WorkerSessions({
      experts,
      shape: SHAPE,
      identity: () => own,
      tellStatus: () => undefined,
      takeRoster: rosterTaker(trust, log),
      runtime: RUNTIME,
      log,
      fetch: null,
    });
    return this.serve(own, trust, { port, worker: sessions });
  }

  async shadow(trust = this.trust('shadow')): Promise<RpcServer> {
    const own = inHome(identity('helper', 'ROLE_SHADOW'));
    const log = this.log.logger('shadow');
    const transport = new GrpcTransport(RUNTIME, null, trust);
    const workers = new WorkerLinks({
      open: (address) => {
        const stream = openWorkerStream(transport, address, NETWORK);
        const onClose = stream.onClose.bind(stream);
        stream.onClose = (handler) => onClose((error) => (this.ends.push(error), handler(error)));
        return stream;
      },
      identity: () => own,
      reconnectDelayMs: NETWORK.reconnectDelayMs,
      runtime: RUNTIME,
      log,
    });
    const service = new ShadowService({
      identity: () => own,
      status: (epoch) => ({ identity: own, epoch }) as NodeStatus,
      shape: SHAPE,
      createPredictor: (events) => new Predictor(new ScriptedModel(), {} as Pass, 4, events, RUNTIME),
      workers,
      takeRoster: rosterTaker(trust, log),
      runtime: RUNTIME,
      log,
    });
    this.closers.push(() => service.stop());
    return this.serve(own, trust, { shadow: { serve: (stream, peer) => service.accept(stream, peer) } });
  }

  /** Main, which dials these daemons. */
  async main(
    trust: NodeTrust,
    daemons: Partial<Record<Role, RpcServer>>,
  ): Promise<TestMembership & { address: string }> {
    const own = inHome(identity('box', 'ROLE_MAIN'));
    const transport = new GrpcTransport(RUNTIME, null, trust);
    const log = this.log.logger('main');
    const made = membershipOf({ identity: () => own, runtime: RUNTIME, transport, trust, log }, RUNTIME);
    const { membership, roster } = made;
    this.closers.push(async () => (await membership.stop(), roster.stop()));
    const cluster: RpcServerOptions['cluster'] = {
      join: ({ identity: peer }, context) => membership.join(peer, context),
      status: () => Promise.reject(new Error('unused')),
    };
    const { address } = await this.serve(own, trust, { cluster });
    for (const [role, server] of Object.entries(daemons)) {
      membership.addConfigured([{ role: role as Role, id: '', address: server.address }]);
    }
    return { ...made, address };
  }

  private async serve(own: NodeIdentity, trust: NodeTrust, more: Partial<RpcServerOptions>): Promise<RpcServer> {
    const log = this.log.logger(own.id);
    const node = { identify: () => own };
    const transport = new GrpcTransport(RUNTIME, null, trust);
    const server = await transport.serve({ host: '127.0.0.1', port: 0, network: NETWORK, log, node, ...more });
    own.address = server.address;
    this.closers.push(() => server.stop());
    return server;
  }

  async close(): Promise<void> {
    for (const closer of this.closers.reverse()) await closer();
  }
}

function inHome(plain: NodeIdentity): NodeIdentity {
  return { ...plain, cluster: 'home' };
}

describe('the roster on its way to the nodes', () => {
  let home: Home;

  beforeEach(() => {
    home = new Home();
  });

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') home.log.print();
    await home.close();
  });

  const said = (text: string): boolean => home.log.matching(text).length > 0;

  it("ends shadow's stream to a worker that main has removed, and tells this worker why", async () => {
    const daemons = { worker: await home.worker(), shadow: await home.shadow() };
    const main = home.trust('main');
    const { address, roster } = await home.main(main, daemons);
    await waitUntil('shadow is connected to the worker', () => said('connected to worker'));
    const removed = done(removePeer(home.roster, 'jetson-2', NOW_MS));
    main.takeRoster(signRoster(removed, AUTHORITY));
    assert.deepEqual(roster.connectedWorkers(), [], "main's own stream ends at once");
    await waitUntil('shadow has the roster', () => home.count('shadow') === removed.count);
    assert.deepEqual(
      home.ends.map((error) => [error?.code, error?.message]),
      [['TRUST_REFUSED', REMOVED]],
    );
    await waitUntil('the worker knows why', () => said('this node is not in its cluster any more'));
    assert.match(home.log.matching('not in its cluster any more')[0] ?? '', /jetson-2 was removed from .*--rejoin/);
    const worker = new GrpcTransport(RUNTIME, null, home.trusts.get('worker') ?? null);
    const asked = joinMain(worker, address, { ...identity('jetson-2'), cluster: 'home' }, JOIN_TIMEOUT_MS);
    const refusal = toOdmoeError(await asked.catch((thrown: unknown) => thrown));
    assert.deepEqual([refusal.code, refusal.message], ['TRUST_REFUSED', REMOVED]);
  });

  it('reaches a node that was away, once main is connected to it again', async () => {
    const trust = home.trust('worker');
    const first = await home.worker(0, trust);
    const main = home.trust('main');
    const { roster } = await home.main(main, { worker: first });
    await waitUntil('main is connected', () => roster.connectedWorkers().length === 1);
    await first.stop();
    await waitUntil('the worker is away', () => roster.connectedWorkers().length === 0);
    const newest = done(removePeer(home.roster, 'helper', NOW_MS));
    main.takeRoster(signRoster(newest, AUTHORITY));
    assert.equal(home.count('worker'), home.roster.count);
    await home.worker(first.port, trust);
    await waitUntil('the worker has the newest roster', () => home.count('worker') === newest.count);
    assert.match(trust.refusalOf({ ...PEER, id: 'helper' }) ?? '', /removed/);
  });

  it('lets the streams of a node go on that renews its key, also when the day of the old key ends', async () => {
    const daemons = { worker: await home.worker(), shadow: await home.shadow() };
    const main = home.trust('main');
    const { address, roster } = await home.main(main, daemons);
    await waitUntil('shadow is connected to the worker', () => said('connected to worker'));
    const shadow = home.trusts.get('shadow');
    assert.ok(shadow !== undefined);
    const { own: old, ownPeer } = shadow;
    const key = createNodeKey();
    const renewed = done(renewPeer(AUTHORITY, home.roster, ownPeer, createPublicKey(key), NOW_MS));
    main.takeRoster(signRoster(renewed.roster, AUTHORITY));
    shadow.renew({ key, certificate: renewed.certificate });
    await waitUntil(
      'all know of it',
      () => home.count('worker') === renewed.roster.count && home.count('shadow') === renewed.roster.count,
    );
    const ended = withoutPreviousKeys(renewed.roster, NOW_MS + 2 * PREVIOUS_KEY_MS, () => true);
    main.takeRoster(signRoster(ended, AUTHORITY));
    await waitUntil(
      'all know of that',
      () => home.count('worker') === ended.count && home.count('shadow') === ended.count,
    );
    const ask = (own: OwnCertificate): Promise<NodeIdentity> => {
      shadow.renew(own);
      return identifyPeer(new GrpcTransport(RUNTIME, null, shadow), address, JOIN_TIMEOUT_MS);
    };
    assert.equal((await ask({ key, certificate: renewed.certificate })).id, 'box');
    await assert.rejects(ask(old), { code: 'TRUST_REFUSED', message: /was replaced/ });
    assert.deepEqual(home.ends, [], "shadow's stream to the worker stands");
    assert.equal(roster.connectedWorkers().length, 1);
    assert.equal(said('the shadow is gone') || said('a peer is gone') || said('main is gone'), false);
    main.takeRoster(signRoster(done(removePeer(ended, 'helper', NOW_MS)), AUTHORITY));
    await waitUntil('a removal ends it all the same', () => home.ends.length > 0);
  });

  it('is not taken where it is one of yesterday, and the node goes on', async () => {
    const newest = done(removePeer(home.roster, 'helper', NOW_MS));
    const worker = await home.worker(0, home.trust('worker', newest));
    const { roster } = await home.main(home.trust('main', home.roster), { worker });
    await waitUntil('the old roster is refused', () => said('a roster of main is not taken'));
    assert.match(home.log.matching('is not taken')[0] ?? '', /an old one .*odmoe cluster restore/);
    assert.equal(home.count('worker'), newest.count);
    assert.equal(roster.connectedWorkers().length, 1);
  });
});

const PEER = { cluster: 'home', role: 'shadow', keyDigest: 'ab'.repeat(32), issuedAt: 1 } as const;

describe('a node that is sent a roster', () => {
  const LINES = ['debug', 'info', 'warn', 'error'];
  const linesOf = (log: TestLog): string[] => LINES.flatMap((level) => log.matching(`node: ${level} `));

  it('ignores it without trust', () => {
    const log = new TestLog();
    rosterTaker(null, log.logger('node'))(Buffer.from('anything'));
    assert.match(linesOf(log).join(), /debug .*no certificate of a cluster/);
  });

  it('logs a newer one once, and the same one not at all', () => {
    const home = new Home();
    const log = new TestLog();
    const take = rosterTaker(home.trust('worker', firstRoster('home')), log.logger('node'));
    const signed = signRoster(home.roster, AUTHORITY);
    take(signed);
    take(signed);
    assert.equal(linesOf(log).length, 1);
    assert.match(linesOf(log)[0] ?? '', /took a newer roster.*"count":4/);
  });
});
