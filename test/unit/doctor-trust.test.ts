import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTlsServer, type TLSSocket } from 'node:tls';
import type { Check } from '../../cli/doctor/check.js';
import { trustOfMain } from '../../cli/doctor/cluster-checks.js';
import { diagnosePeer, type PeerDiagnosis } from '../../cli/doctor/diagnose-peer.js';
import { checkEnvironment } from '../../cli/doctor/environment-check.js';
import { identitiesOnce, type OwnIdentity } from '../../cli/doctor/own-identities.js';
import type { Admission, ShownByTls } from '../../cli/doctor/probe-tls.js';
import { checkClock, type MainProbe, trustChecks } from '../../cli/doctor/trust-checks.js';
import { keyToCertify, storeIdentity } from '../../engine/trust/identity-files.js';
import { firstRoster } from '../../engine/trust/roster-changes.js';
import { signRoster } from '../../engine/trust/roster.js';
import { EnrolmentDesk } from '../../main-node/enrolment/enrolment-desk.js';
import { EnrolmentDoor } from '../../main-node/enrolment/enrolment-door.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import {
  issueCertificate,
  readPeerCertificate,
  shortAuthorityDigest,
} from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { RUNTIME } from '../wall.js';
import { TestCluster } from './cluster-authority.js';
import { MemoryState } from './enrolment-main.js';
import { Lines } from './log-lines.js';
import { plainIdentity } from './plain-identity.js';
import { showing, TrustedServers } from './trusted-servers.js';

const TIMEOUT_MS = 3000;
const HOUR_MS = 3_600_000;
const HOME = new TestCluster('home');
/** A second authority of the same name. */
const TWIN = new TestCluster('home');

function joined(cluster: TestCluster, role: PeerRole, id: string): OwnIdentity {
  const own = cluster.certify(role, id);
  const { certificate: authority } = cluster.authority;
  const peer = readPeerCertificate(own.certificate, authority);
  assert.ok(!isRefusal(peer));
  const roster = firstRoster(cluster.name);
  const signedRoster = signRoster(roster, cluster.authority);
  return { kind: 'joined', id, credentials: { ...own, authority, peer, roster, signedRoster } };
}

function shownBy(cluster: TestCluster, changes: Partial<ShownByTls> = {}): ShownByTls {
  return {
    peer: { cluster: cluster.name, role: 'main', id: 'box' },
    certificate: cluster.certify('main', 'box').certificate,
    authority: cluster.authority.certificate,
    clocks: null,
    ...changes,
  };
}

describe('odmoe doctor: the check of trust', () => {
  const jetson = joined(HOME, 'worker', 'jetson');
  const address = '192.168.1.20:7600';

  function judge(own: readonly OwnIdentity[], changes: Partial<MainProbe> = {}): Check {
    const main = { address, cluster: 'home', isNamed: true, shown: shownBy(HOME), admissions: new Map(), ...changes };
    const [check, ...others] = trustChecks(main, own);
    assert.ok(check !== undefined && check.name === 'trust' && others.length === 0);
    return check;
  }

  function expect(check: Check, status: Check['status'], found: RegExp, advice: RegExp): void {
    assert.equal(check.status, status, check.found);
    assert.match(check.found, found);
    assert.match(check.advice, advice);
  }

  function admission(answer: Admission): ReadonlyMap<string, Admission> {
    return new Map([['jetson', answer]]);
  }

  it('is content with a main that admits this machine', () => {
    const check = judge([jetson], { admissions: admission({ kind: 'admitted' }) });
    expect(check, 'ok', /admits worker jetson/, /^$/);
    assert.ok(check.found.includes(shortAuthorityDigest(HOME.authority.certificate)));
  });

  it('fails when main speaks plaintext and this machine has joined by an authority', () => {
    expect(
      judge([jetson], { shown: null }),
      'fail',
      /speaks plaintext, and worker jetson has joined "home"/,
      /restore/,
    );
  });

  it('knows a cluster without an authority: fine on loopback, open on a network', () => {
    expect(judge([], { shown: null, address: '127.0.0.1:7600' }), 'ok', /no authority/, /^$/);
    expect(judge([], { shown: null }), 'warn', /no authority/, /cluster init/);
    const waiting = { kind: 'waiting', id: 'jetson', isOperator: false } as const;
    expect(judge([waiting], { shown: null }), 'warn', /no authority/, /cluster init/);
  });

  it('says how to join when main speaks TLS and this machine has not joined', () => {
    expect(
      judge([]),
      'fail',
      /speaks TLS of the authority [0-9a-f]{16}.*has not joined "home"/,
      /odmoe accept CODE.*--join-file FILE.*ODMOE_JOIN_TOKEN=TOKEN odmoe operator join --id NAME/,
    );
    assert.equal(judge([], { isNamed: false }).status, 'warn', "a neighbour's cluster is no fault of this machine");
    expect(judge([], { shown: shownBy(HOME, { authority: null }) }), 'fail', /speaks TLS, and this machine/, /join/);
  });

  it('shows both authorities when main is of another one, by its door or by its certificate alone', () => {
    const [here, there] = [HOME, TWIN].map(({ authority }) => shortAuthorityDigest(authority.certificate));
    const check = judge([jetson], { shown: shownBy(TWIN) });
    expect(
      check,
      'fail',
      new RegExp(`of the authority ${there}, and worker jetson of ${here}`),
      /another cluster of the name "home", or `odmoe cluster init` was run twice/,
    );
    expect(judge([jetson], { shown: shownBy(TWIN, { authority: null }) }), 'fail', /is not of the authority/, /--main/);
  });

  it('fails when main shows an authority that has not certified it, whether this machine has joined or not', () => {
    const shown = shownBy(TWIN, { authority: HOME.authority.certificate });
    for (const own of [[], [jetson]]) expect(judge(own, { shown }), 'fail', /has not certified it/, /do not let/);
  });

  it('tells an operator who has begun to join from a daemon', async () => {
    const state = mkdtempSync(join(tmpdir(), 'odmoe-doctor-'));
    const [daemons, operators] = [join(state, 'daemons'), join(state, 'operators')];
    try {
      await keyToCertify(daemons, 'jetson');
      await keyToCertify(operators, 'ann');
      assert.deepEqual(await identitiesOnce(() => ({ daemons, operators }))('home'), [
        { kind: 'waiting', id: 'jetson', isOperator: false },
        { kind: 'waiting', id: 'ann', isOperator: true },
      ]);
    } finally {
      rmSync(state, { recursive: true, force: true });
    }
  });

  it('says that this machine shows no certificate: it waits, or its files cannot be used', () => {
    const worker = { kind: 'waiting', id: 'jetson', isOperator: false } as const;
    expect(judge([worker]), 'warn', /jetson shows no certificate/, /odmoe accept CODE`$/);
    const operator = { ...worker, id: 'ann', isOperator: true };
    expect(
      judge([operator]),
      'warn',
      /ann shows no certificate/,
      /^say `ODMOE_JOIN_TOKEN=TOKEN odmoe operator join --id ann` again$/,
    );
    const damaged = { kind: 'damaged', id: 'jetson', reason: 'node.crt: it ends early' } as const;
    expect(judge([damaged]), 'fail', /shows no certificate.*node\.crt: it ends early/, /--rejoin/);
  });

  it('hands on the words by which main refuses this machine, or says that none came', () => {
    const words = 'node jetson was removed from "home"';
    const refused = judge([jetson], { admissions: admission({ kind: 'refused', words }) });
    expect(refused, 'fail', new RegExp(`refuses worker jetson: ${words}`), /--rejoin/);
    const silent = judge([jetson], { admissions: admission({ kind: 'unanswered', reason: 'no reply' }) });
    expect(silent, 'warn', /no reply/, /try again/);
    expect(judge([jetson]), 'warn', /was not asked/, /try again/);
  });

  it('judges each daemon of this machine', () => {
    const admissions = new Map<string, Admission>([['jetson', { kind: 'admitted' }]]);
    const main = { address, cluster: 'home', isNamed: true, shown: shownBy(HOME), admissions };
    const checks = trustChecks(main, [jetson, joined(TWIN, 'shadow', 'den')]);
    assert.deepEqual(
      checks.map(({ status }) => status),
      ['ok', 'fail'],
    );
  });
});

describe('odmoe doctor: the checks of clock and environment', () => {
  it('the clock is compared with the one of main, and certificates are said not to mind', () => {
    const hereMs = Date.parse('2031-05-05T00:00:00Z');
    const at = (offsetMs: number): Check => checkClock(new Date(hereMs), { hereMs, thereMs: hereMs + offsetMs });
    for (const offsetMs of [0, 23 * HOUR_MS, -23 * HOUR_MS]) assert.equal(at(offsetMs).status, 'ok');
    for (const offsetMs of [25 * HOUR_MS, -25 * HOUR_MS]) {
      const { name, status, found, advice } = at(offsetMs);
      assert.deepEqual([name, status], ['clock', 'warn']);
      assert.ok(found.includes('2031-05-05') && found.includes(new Date(hereMs + offsetMs).toISOString()), found);
      assert.match(advice, /certificates here do not mind; tokens, logs/);
    }
    assert.equal(checkClock(new Date('1970-01-02'), null).status, 'warn');
    assert.equal(checkClock(new Date('2031-05-05'), null).status, 'ok');
    assert.equal(checkClock(new Date('2031-05-05'), { hereMs, thereMs: NaN }).status, 'ok', 'main told no time');
  });

  it('each variable that weakens TLS is named, with what it does to odmoe', () => {
    const cases: [NodeJS.ProcessEnv, RegExp][] = [
      [{ NODE_TLS_REJECT_UNAUTHORIZED: '0' }, /NODE_TLS_REJECT_UNAUTHORIZED=0: .*any certificate.*do not depend/],
      [{ GRPC_SSL_CIPHER_SUITES: 'NULL' }, /GRPC_SSL_CIPHER_SUITES: .*do not depend/],
      [{ NODE_OPTIONS: '--no-warnings --tls-min-v1.0' }, /NODE_OPTIONS --tls-min-v1\.0: .*do not depend/],
      [{ NODE_OPTIONS: '--tls_min_v1.2' }, /NODE_OPTIONS --tls_min_v1\.2: .*do not depend/],
      [{ NODE_OPTIONS: '--tls-max-v1.2' }, /--tls-max-v1\.2: .*do not depend/],
      [{ NODE_OPTIONS: '--tls-cipher-list=RC4' }, /--tls-cipher-list=RC4: .*do not depend/],
      [{ NODE_OPTIONS: '--tls-keylog=/tmp/keys' }, /--tls-keylog=\/tmp\/keys: .*those of odmoe, too/],
    ];
    for (const [variables, found] of cases) {
      const [check, ...others] = checkEnvironment(variables);
      assert.ok(check !== undefined && others.length === 0);
      assert.deepEqual([check.name, check.status], ['environment', 'warn']);
      assert.match(check.found, found);
    }
    const all = checkEnvironment({ NODE_TLS_REJECT_UNAUTHORIZED: '0', NODE_OPTIONS: '--tls-min-v1.1' });
    assert.equal(all.length, 2);
  });

  it('other variables weaken nothing', () => {
    const variables = {
      NODE_EXTRA_CA_CERTS: '/etc/ca.pem',
      NODE_TLS_REJECT_UNAUTHORIZED: '1',
      NODE_OPTIONS: '--tls-min-v1.3 --max-old-space-size=4096',
      SSLKEYLOGFILE: '/tmp/keys',
    };
    assert.deepEqual(
      checkEnvironment(variables).map(({ status }) => status),
      ['ok'],
    );
  });

  it('a daemon is refused as ever where NODE_TLS_REJECT_UNAUTHORIZED is 0', async () => {
    const servers = new TrustedServers();
    const before = process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
    process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
    try {
      const trusted = new GrpcTransport(RUNTIME, null, HOME.member('worker'));
      await assert.rejects(identifyPeer(trusted, await servers.serve(TWIN.member('main')), TIMEOUT_MS));
      assert.equal(
        (await identifyPeer(trusted, await servers.serve(HOME.member('main')), TIMEOUT_MS)).cluster,
        plainIdentity().cluster,
      );
    } finally {
      if (before === undefined) delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
      else process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = before;
      await servers.stop();
    }
  });
});

describe('odmoe doctor: the probe of real daemons', () => {
  const mainIdentity = plainIdentity({ id: 'box', role: 'ROLE_MAIN', cluster: 'home' });
  let directory: string;
  let cluster: TestCluster;
  let servers: TrustedServers;
  const doors: EnrolmentDoor[] = [];
  const others: Server[] = [];

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-doctor-'));
    cluster = new TestCluster('home');
    servers = new TrustedServers();
  });

  afterEach(async () => {
    for (const door of doors.splice(0)) door.close();
    await servers.stop();
    for (const other of others.splice(0)) other.close();
    rmSync(directory, { recursive: true, force: true });
  });

  function doorOf({ authority }: TestCluster): (socket: TLSSocket) => void {
    const desk = new EnrolmentDesk(new MemoryState(authority), RUNTIME);
    const door = new EnrolmentDoor(desk, RUNTIME, new Lines());
    doors.push(door);
    return (socket) => door.take(socket);
  }

  function startMain(of = cluster, enrol = doorOf(of)): Promise<string> {
    return servers.serve(of.member('main', 'box'), { node: { identify: () => mainIdentity }, enrol });
  }

  /** Stores what a worker of this machine gets by joining. */
  async function joinHere(id: string, { authority }: TestCluster): Promise<void> {
    const key = await keyToCertify(directory, id);
    const certificate = issueCertificate(authority, { role: 'worker', id }, createPublicKey(key));
    const roster = signRoster(firstRoster(authority.cluster), authority);
    await storeIdentity(directory, id, { certificate, authority: authority.certificate, roster });
  }

  async function examine(address: string): Promise<{ diagnosis: PeerDiagnosis; checks: Check[] }> {
    const identitiesOf = identitiesOnce(() => ({ daemons: directory, operators: join(directory, 'operators') }));
    const diagnosis = await diagnosePeer(address, TIMEOUT_MS, identitiesOf);
    const candidate = { address, expectedId: null, heardOnly: false };
    const question = {
      config: defaultClusterConfig(),
      cluster: null,
      mainAddress: address,
      configuredMain: null,
      interfaceAddress: null,
      timeoutMs: TIMEOUT_MS,
    };
    return { diagnosis, checks: await trustOfMain({ candidate, diagnosis }, question, identitiesOf) };
  }

  function expectOne(checks: readonly Check[], status: Check['status'], found: RegExp): void {
    assert.deepEqual(
      checks.map((check) => check.status),
      [status],
      checks.map((check) => check.found).join('; '),
    );
    assert.match(checks[0]?.found ?? '', found);
  }

  async function listening(server: Server): Promise<string> {
    others.push(server);
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    assert.ok(address !== null && typeof address === 'object');
    return `127.0.0.1:${address.port}`;
  }

  it('a main in plaintext, without and with an identity here', async () => {
    const address = await servers.serve(null, { node: { identify: () => mainIdentity } });
    const before = await examine(address);
    assert.deepEqual(before.diagnosis, { kind: 'odmoe', identity: mainIdentity, shown: null });
    expectOne(before.checks, 'ok', /no authority/);
    await joinHere('jetson', cluster);
    expectOne((await examine(address)).checks, 'fail', /speaks plaintext, and worker jetson has joined/);
  });

  it('a main with TLS: to a machine that has not joined, waits, has joined, was removed', async () => {
    const address = await startMain();
    const stranger = await examine(address);
    assert.equal(stranger.diagnosis.kind, 'closed');
    expectOne(stranger.checks, 'fail', /speaks TLS of the authority [0-9a-f]{16}.*has not joined "home"/);
    await keyToCertify(directory, 'jetson');
    expectOne((await examine(address)).checks, 'warn', /jetson shows no certificate/);
    await joinHere('jetson', cluster);
    const member = await examine(address);
    assert.ok(member.diagnosis.kind === 'odmoe' && member.diagnosis.shown !== null);
    assert.deepEqual(member.diagnosis.identity, mainIdentity);
    const { clocks } = member.diagnosis.shown;
    assert.ok(clocks !== null && Math.abs(clocks.thereMs - clocks.hereMs) < HOUR_MS, JSON.stringify(clocks));
    expectOne(member.checks, 'ok', /admits worker jetson/);
    cluster.remove('jetson');
    const removed = await examine(address);
    assert.equal(removed.diagnosis.kind, 'closed');
    expectOne(removed.checks, 'fail', /refuses worker jetson: node jetson was removed from "home"/);
  });

  it('a main of another authority, one that shows a false authority, and files that are damaged', async () => {
    await joinHere('jetson', cluster);
    const [here, there] = [cluster, TWIN].map(({ authority }) => shortAuthorityDigest(authority.certificate));
    expectOne((await examine(await startMain(TWIN))).checks, 'fail', new RegExp(`authority ${there}, .* of ${here}`));
    const between = await startMain(TWIN, doorOf(cluster));
    expectOne((await examine(between)).checks, 'fail', /has not certified it/);
    writeFileSync(join(directory, 'nodes', 'jetson', 'node.crt'), 'nothing');
    expectOne((await examine(await startMain())).checks, 'fail', /shows no certificate.*node\.crt/);
  });

  it('a daemon with TLS that has no door, and a door that says too much or nothing of use', async () => {
    await joinHere('jetson', cluster);
    const worker = await servers.serve(cluster.member('worker', 'other'), {
      node: { identify: () => plainIdentity({ id: 'other' }) },
    });
    const { diagnosis } = await examine(worker);
    assert.ok(diagnosis.kind === 'odmoe' && diagnosis.identity.id === 'other' && diagnosis.shown?.authority === null);
    for (const body of ['{"authority":"bm9uZQ=="}', 'no JSON', 'x'.repeat(10_000_000)]) {
      const door = createHttpServer((_, response) => response.on('error', () => undefined).end(body));
      const address = await startMain(cluster, (socket) => void door.emit('connection', socket));
      const main = await examine(address);
      assert.ok(main.diagnosis.kind === 'odmoe' && main.diagnosis.shown !== null);
      assert.equal(main.diagnosis.shown.authority, null);
      expectOne(main.checks, 'ok', /admits worker jetson/);
    }
  });

  it('programs that are not odmoe, with TLS and without, and one that says nothing', async () => {
    const { key, certificate } = cluster.authority;
    const strangers = [
      createTlsServer(showing({ key, certificate })),
      createServer((socket) => socket.end('SSH-2.0\r\n')),
    ];
    for (const server of strangers) {
      server.on('connection', (socket: Socket) => socket.on('error', () => undefined));
      assert.equal((await diagnosePeer(await listening(server), TIMEOUT_MS, identitiesOnce())).kind, 'stranger');
    }
    const opened = new Set<{ destroy(): void }>();
    const mute = createServer((socket) => void opened.add(socket.on('error', () => undefined)));
    assert.equal((await diagnosePeer(await listening(mute), 100, identitiesOnce())).kind, 'stranger');
    for (const socket of opened) socket.destroy();
  });
});
