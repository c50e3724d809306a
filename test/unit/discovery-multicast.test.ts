import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import bonjourService from 'bonjour-service';
import { setTimeout as delay } from 'node:timers/promises';

import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';

import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';

import type { NodeSettings } from '../../shared/settings/node-settings.js';

import { findMains, multicastDiscovery, onePerNode } from '../../shared/transport/discovery/discovery.js';

import { probeMulticast } from '../../cli/doctor/probe-multicast.js';

import { decodeTxt, type DiscoveredPeer, encodeTxt } from '../../shared/transport/discovery/txt-record.js';
import { listen, MAX_HEARD_SERVICES, Multicast } from '../../shared/transport/discovery/multicast.js';

import { type HostAddress, hostAddresses, InterfaceWatch } from '../../shared/transport/discovery/host-interfaces.js';

import type { Logger } from '../../shared/base/log/logger.js';

import { authorityProblem, LeftOutPeers } from '../../shared/transport/discovery/left-out-peers.js';

import type { NodeIdentity } from '../../shared/wire/messages.js';

import { type Timer } from '../../shared/base/runtime/runtime.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';

const DISCOVERY = multicastDiscovery(RUNTIME, new InterfaceWatch(RUNTIME, hostAddresses));

const SILENT: Logger = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  debug: () => undefined,
};
const LOOPBACK = '127.0.0.1';
const FOUND_LIMIT_MS = 8000;

function settings(id: string, cluster: string, provider: 'mdns' | 'static' = 'mdns'): NodeSettings {
  const flags = { id, cluster, model: '/nowhere', discovery: provider, interface: LOOPBACK };
  return resolveNodeSettings('main', defaultClusterConfig(), flags);
}

function identity(id: string, cluster: string, change: Partial<NodeIdentity> = {}): NodeIdentity {
  return {
    id,
    role: 'ROLE_MAIN',
    cluster,
    protocolVersion: 1,
    modelName: 'demo',
    packDigest: 'd'.repeat(64),
    bootId: 'boot-1',
    address: '127.0.0.1:7600',
    device: 'cpu',
    release: '',
    ...change,
  };
}

const THIS_HOST = { host: LOOPBACK, port: 7600, isThisHost: true };

function readHere(txt: unknown): DiscoveredPeer {
  const heard = decodeTxt(txt, THIS_HOST);
  assert.ok(heard.kind === 'peer');
  return heard.peer;
}

describe('the daemons that were heard', () => {
  it('are one for each node, and one that takes the names of another is another by its authority', () => {
    const heard = readHere(encodeTxt(identity('box', 'home'), '0123456789abcdef'));
    const posing = readHere(encodeTxt(identity('box', 'home'), null));
    assert.deepEqual(onePerNode([heard, heard, posing]), [heard, posing]);
  });
});

describe('the TXT record of an advertisement', () => {
  it('decodes to the values that were encoded, empty values too', () => {
    const changes: { authority?: string; of?: Partial<NodeIdentity> }[] = [
      {},
      { of: { modelName: '', packDigest: '' } },
      { of: { role: 'ROLE_WORKER' } },
      { of: { newestProtocol: 2 } },
      { authority: '0123456789abcdef' },
    ];
    for (const change of changes) {
      const said = identity('n1', 'lab', change.of);
      assert.deepEqual(readHere(encodeTxt(said, change.authority ?? null)), {
        id: 'n1',
        role: said.role === 'ROLE_MAIN' ? 'main' : 'worker',
        cluster: 'lab',
        protocolVersion: 1,
        newestProtocol: said.newestProtocol ?? 1,
        modelName: said.modelName,
        packDigest: said.packDigest,
        bootId: 'boot-1',
        authority: change.authority ?? null,
        address: '127.0.0.1:7600',
      });
    }
  });

  it('is malformed when another program wrote it or it is damaged, and the reason is given', () => {
    const good = encodeTxt(identity('n1', 'lab'), null);
    const broken: unknown[] = [
      undefined,
      null,
      'text',
      {},
      { ...good, role: 'king' },
      { ...good, protocol: 'one' },
      { ...good, newest: 'two' },
      { ...good, id: 7 },
      { ...good, cluster: '' },
      { ...good, model: 'x'.repeat(300) },
      { ...good, ca: '0123456789abcde' },
      { ...good, ca: '0123456789ABCDEF' },
      { ...good, loopback: '192.168.1.20' },
      { ...good, loopback: 'example.org' },
    ];
    for (const txt of broken) {
      const result = decodeTxt(txt, THIS_HOST);
      assert.ok(result.kind === 'malformed' && result.reason !== '', JSON.stringify(txt));
    }
  });
});

describe('discovery with static addresses', () => {
  it('advertises nothing and reports no peers', async () => {
    const own = settings('a', 'lab', 'static');
    const advertising = await DISCOVERY.advertise(own, identity('a', 'lab'), SILENT);
    const watching = await DISCOVERY.watchPeers(own, () => assert.fail('nobody is to be found'), SILENT);
    await Promise.all([advertising.stop(), watching.stop(), watching.stop()]);
  });
});

const SENDER = '192.0.2.1';

/** A network on which SENDER advertises daemons to browsers of this process. */
class TestLan {
  readonly socket = new EventEmitter();
  readonly browsers: InstanceType<typeof bonjourService.Browser>[] = [];
  asked = 0;

  constructor() {
    Object.assign(this.socket, { query: () => (this.asked += 1) });
  }

  get multicast(): Multicast {
    const responder = {
      find: (options: { type: string }) => {
        const browser = new bonjourService.Browser(this.socket, options);
        this.browsers.push(browser);
        return browser;
      },
    };
    const multicast = {
      listen: ({ opened }: { opened: (one: unknown) => void }) => {
        opened(responder);
        return () => undefined;
      },
    };
    return multicast as unknown as Multicast;
  }

  advertise(daemon: NodeIdentity, port: number): void {
    const name = `lab-${daemon.id}._odmoe._tcp.local`;
    const txt = Object.entries(encodeTxt(daemon, null)).map(([key, value]) => Buffer.from(`${key}=${value}`));
    const answers = [
      { type: 'PTR', name: '_odmoe._tcp.local', ttl: 100, data: name },
      { type: 'SRV', name, ttl: 100, data: { port, target: 'box' } },
      { type: 'TXT', name, ttl: 100, data: txt },
    ];
    this.socket.emit('response', { answers, additionals: [] }, { address: SENDER, port: 5353 });
  }
}

describe('a daemon that listens on the loopback of its host', () => {
  const lo = { name: 'lo', address: LOOPBACK, internal: true };
  const hosts = {
    own: [lo, { name: 'eth0', address: SENDER, internal: false }],
    other: [lo, { name: 'eth0', address: '192.0.2.2', internal: false }],
  };

  it('is dialled there by its own host, and by no other: neither at its address nor at the loopback of the other', () => {
    const lan = new TestLan();
    const heard = Object.entries(hosts).map(([host, addresses]) => {
      const peers: string[] = [];
      const stop = listen(lan.multicast, {
        ownAddresses: () => addresses,
        onPeer: ({ id, address }) => void peers.push(`${id} at ${address}`),
        onElsewhere: ({ id }) => void peers.push(`${id} elsewhere`),
        log: null,
        runtime: RUNTIME,
      });
      return { host, peers, stop };
    });
    lan.advertise(identity('inner', 'lab', { address: '127.0.0.1:7600' }), 7600);
    lan.advertise(identity('v6', 'lab', { address: '[::1]:7601' }), 7601);
    lan.advertise(identity('open', 'lab', { address: ':7602' }), 7602);
    lan.advertise(identity('named', 'lab', { address: `${SENDER}:7603` }), 7603);
    for (const { stop } of heard) stop();
    const open = [`open at ${SENDER}:7602`, `named at ${SENDER}:7603`];
    assert.deepEqual(
      heard.map(({ host, peers }) => [host, peers]),
      [
        ['own', ['inner at 127.0.0.1:7600', 'v6 at [::1]:7601', ...open]],
        ['other', ['inner elsewhere', 'v6 elsewhere', ...open]],
      ],
    );
  });
});

describe('the peers that discovery leaves out', () => {
  const mine = '0123456789abcdef';
  const other = 'fedcba9876543210';

  it('are those of another authority, those with one if this daemon has none, and those without if it has', () => {
    assert.equal(authorityProblem({ authority: mine }, mine), null);
    assert.equal(authorityProblem({ authority: null }, null), null);
    const reasons = [
      authorityProblem({ authority: other }, mine),
      authorityProblem({ authority: other }, null),
      authorityProblem({ authority: null }, mine),
    ];
    assert.deepEqual(reasons, [
      `it is of another authority (${other}) than this daemon (${mine})`,
      `its cluster has an authority (${other}), and this daemon has not joined it`,
      `it has no authority, and this daemon's cluster has (${mine})`,
    ]);
  });

  it('are named once each, and a flood of them fills no log', () => {
    const log = new Lines();
    let nowMs = 0;
    const leftOut = new LeftOutPeers(log, { nowMs: () => nowMs });
    for (let time = 0; time < 3; time += 1) leftOut.add({ id: 'w', address: 'h:1' }, 'a reason');
    leftOut.add({ id: 'w', address: 'h:1' }, 'another reason');
    assert.deepEqual(
      log.all.map((line) => /"reason":"(.*)"/.exec(line)?.[1]),
      ['a reason', 'another reason'],
    );
    for (let number = 0; number < 10_000; number += 1) leftOut.add({ id: `w${number}`, address: 'h:1' }, 'a reason');
    assert.ok(log.all.length <= 20, `${log.all.length} lines`);
    nowMs += 60_000;
    leftOut.add({ id: 'late', address: 'h:1' }, 'a reason');
    assert.match(log.all.at(-1) ?? '', /"peer":"late"/);
  });
});

describe('the records of multicast discovery', () => {
  it('are bounded, however many strangers advertise themselves, and a living peer is found among them', () => {
    const lan = new TestLan();
    const { browsers, socket } = lan;
    const advertise = (id: string, port: number): void =>
      lan.advertise(identity(id, 'lab', { address: ':7600' }), port);
    const found: string[] = [];
    const stop = listen(lan.multicast, {
      ownAddresses: hostAddresses,
      onPeer: ({ id }) => void found.push(id),
      log: null,
      runtime: RUNTIME,
    });
    advertise('real', 7600);
    for (let number = 0; number < 20 * MAX_HEARD_SERVICES; number += 1) advertise(`forged-${number}`, 1 + number);
    advertise('real', 7600);
    assert.equal(socket.listenerCount('response'), 1, 'replaced browsers listen no more');
    stop();
    for (const { services } of browsers)
      assert.ok(services.length <= MAX_HEARD_SERVICES, `${services.length} are kept`);
    assert.equal(socket.listenerCount('response'), 0, 'none listens after the end');
    assert.ok(lan.asked <= 25, `${lan.asked} questions for 20 times the bound`);
    assert.equal(found.filter((id) => id === 'real').length, 2);
  });
});

describe('discovery by multicast on the loopback interface', function () {
  this.timeout(30_000);
  const cluster = `test-${process.pid}`;
  const running: { stop(): Promise<void> }[] = [];

  before(async function () {
    const { heardOneself } = await probeMulticast(RUNTIME, LOOPBACK, 700);
    if (!heardOneself) {
      console.log('      (multicast does not work on the loopback interface here: skipped)');
      this.skip();
    }
  });

  afterEach(async () => {
    await Promise.all(running.splice(0).map((node) => node.stop()));
  });

  async function until(condition: () => boolean): Promise<void> {
    for (let waitedMs = 0; !condition(); waitedMs += 20) {
      assert.ok(waitedMs < FOUND_LIMIT_MS, 'nothing was found');
      await delay(20);
    }
  }

  it('finds nodes of the same cluster, whoever starts first, and neither itself nor other clusters', async () => {
    const heard: DiscoveredPeer[] = [];
    running.push(await DISCOVERY.advertise(settings('early', cluster), identity('early', cluster), SILENT));
    running.push(await DISCOVERY.watchPeers(settings('me', cluster), (peer) => heard.push(peer), SILENT));
    running.push(await DISCOVERY.advertise(settings('me', cluster), identity('me', cluster), SILENT));
    running.push(
      await DISCOVERY.advertise(settings('x', `${cluster}-other`), identity('x', `${cluster}-other`), SILENT),
    );
    running.push(await DISCOVERY.advertise(settings('late', cluster), identity('late', cluster), SILENT));
    await until(() => heard.length >= 2);
    await delay(300);
    assert.deepEqual(heard.map(({ id }) => id).sort(), ['early', 'late']);
    assert.equal(heard[0]?.address, '127.0.0.1:7600');
    assert.equal(heard[0]?.packDigest, 'd'.repeat(64));
  });

  it('reports only nodes of the same authority, and says once why it leaves others alone', async () => {
    const authorities = { a: '0123456789abcdef', b: 'fedcba9876543210', none: null };
    const interfaces = new InterfaceWatch(RUNTIME, hostAddresses);
    const of = (name: keyof typeof authorities) => multicastDiscovery(RUNTIME, interfaces, authorities[name]);
    const heard: { a: string[]; none: string[] } = { a: [], none: [] };
    const logs = { a: new Lines(), none: new Lines() };
    for (const name of ['a', 'none'] as const) {
      const seen = ({ id }: DiscoveredPeer): void => void heard[name].push(id);
      running.push(await of(name).watchPeers(settings('me', cluster), seen, logs[name]));
    }
    for (const name of ['a', 'b', 'none'] as const) {
      running.push(await of(name).advertise(settings(`of-${name}`, cluster), identity(`of-${name}`, cluster), SILENT));
    }
    const leftOut = ({ all }: Lines): string[] =>
      all.flatMap((line) => /left alone.*"peer":"(of-[a-z]+)"/.exec(line)?.slice(1) ?? []);
    await until(() => leftOut(logs.a).length + leftOut(logs.none).length >= 4);
    await until(() => heard.a.length > 0 && heard.none.length > 0);
    assert.deepEqual([new Set(heard.a), new Set(heard.none)], [new Set(['of-a']), new Set(['of-none'])]);
    assert.deepEqual(
      [leftOut(logs.a).sort(), leftOut(logs.none).sort()],
      [
        ['of-b', 'of-none'],
        ['of-a', 'of-b'],
      ],
    );
    const mains = await findMains(RUNTIME, cluster, 1000, LOOPBACK);
    const found = mains.map(({ id, authority }) => `${id} ${String(authority)}`).sort();
    assert.deepEqual(found, [`of-a ${authorities.a}`, `of-b ${authorities.b}`, 'of-none null']);
  });

  it('repeats the report of a node that is alive and unchanged', async () => {
    let heard = 0;
    running.push(await DISCOVERY.advertise(settings('n', cluster), identity('n', cluster), SILENT));
    const multicast = new Multicast((error) => assert.fail(String(error)));
    multicast.speakThrough([LOOPBACK]);
    const count = (peer: DiscoveredPeer): void => void (heard += peer.cluster === cluster ? 1 : 0);
    const stopListening = listen(multicast, {
      ownAddresses: hostAddresses,
      onPeer: count,
      log: null,
      runtime: RUNTIME,
      afreshMs: 100,
    });
    await until(() => heard >= 3);
    stopListening();
    await multicast.close(RUNTIME);
  });

  it('reports a node again when its host has other addresses, and finds it when its host has a network at last', async () => {
    const heard: DiscoveredPeer[] = [];
    running.push(await DISCOVERY.watchPeers(settings('me', cluster), (peer) => heard.push(peer), SILENT));
    let addresses: HostAddress[] = [];
    let look = (): void => undefined;
    const runtime = Object.assign(new WallRuntime(), {
      every: (_intervalMs: number, run: () => void): Timer => {
        look = run;
        return { cancel: () => undefined, unref: () => undefined };
      },
    });
    const moving = multicastDiscovery(RUNTIME, new InterfaceWatch(runtime, () => addresses));
    running.push(await moving.advertise(settings('n', cluster), identity('n', cluster), SILENT));
    await delay(100);
    assert.equal(heard.length, 0, 'its host has no network yet');
    addresses = [{ name: 'lo', address: LOOPBACK, internal: true }];
    look();
    await until(() => heard.length === 1);
    addresses = [...addresses, { name: 'eth0', address: '192.0.2.7', internal: false }];
    look();
    await until(() => heard.length === 2);
    assert.deepEqual(
      heard.map(({ id, bootId }) => `${id} ${bootId}`),
      ['n boot-1', 'n boot-1'],
    );
  });

  it('reports a node again when it has restarted', async () => {
    const boots: string[] = [];
    running.push(await DISCOVERY.watchPeers(settings('me', cluster), (peer) => boots.push(peer.bootId), SILENT));
    const first = await DISCOVERY.advertise(settings('n', cluster), identity('n', cluster), SILENT);
    await until(() => boots.length === 1);
    await first.stop();
    running.push(
      await DISCOVERY.advertise(settings('n', cluster), identity('n', cluster, { bootId: 'boot-2' }), SILENT),
    );
    await until(() => boots.length === 2);
    assert.deepEqual(boots, ['boot-1', 'boot-2']);
  });

  it('finds the mains of one cluster or of all', async () => {
    running.push(await DISCOVERY.advertise(settings('m1', cluster), identity('m1', cluster), SILENT));
    const other = `${cluster}-b`;
    running.push(await DISCOVERY.advertise(settings('m2', other), identity('m2', other), SILENT));
    const worker = identity('w', cluster, { role: 'ROLE_WORKER' });
    running.push(await DISCOVERY.advertise(settings('w', cluster), worker, SILENT));
    const [ofOne, ofAll] = await Promise.all([
      findMains(RUNTIME, cluster, 1000, LOOPBACK),
      findMains(RUNTIME, null, 1000, LOOPBACK),
    ]);
    assert.deepEqual(
      ofOne.map(({ id }) => id),
      ['m1'],
    );
    const ids = ofAll.map(({ id }) => id);
    assert.ok(ids.includes('m1') && ids.includes('m2') && !ids.includes('w'), ids.join());
  });
});
