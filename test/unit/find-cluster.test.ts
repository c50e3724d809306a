import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { obstacleTo } from '../../engine/daemon/enter-cluster.js';
import { knownAuthorities } from '../../engine/daemon/cluster-directories.js';
import { chooseMain, fittingMains, type FoundMain } from '../../engine/daemon/find-cluster.js';
import { authorityDirectory } from '../../engine/trust/authority-files.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';
import { operatorServices, startNewMain, StoredMain } from './stored-main.js';
import { plainIdentity } from './plain-identity.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { EnteringDaemons } from './entering-daemons.js';

describe('the main that a daemon finds', () => {
  let daemons: EnteringDaemons;

  beforeEach(() => {
    daemons = new EnteringDaemons();
  });

  afterEach(() => daemons.end());

  it('is left to the user where several authorities answer, whose words it says once, and it goes on looking', async () => {
    const mainOf = (cluster: string): Promise<StoredMain> =>
      startNewMain(daemons.stateOf('box', cluster), cluster, operatorServices(daemons.stateOf('box', cluster)));
    daemons.main = await mainOf('home');
    const lab = await mainOf('lab');
    const abandon = new AbortController();
    setTimeout(() => abandon.abort(), 4000).unref();
    try {
      await assert.rejects(daemons.enter(daemons.settingsOf('worker', {}, 'box'), { abandoned: abandon.signal }), {
        code: 'CANCELLED',
      });
    } finally {
      await lab.stop();
    }
    const found = [
      `"home" at ${daemons.main.address}, words: ${daemons.main.desk.words}`,
      `"lab" at ${lab.address}, words: ${lab.desk.words}`,
    ];
    // Another test may run a demo, which answers at the usual port of this host, too.
    const own = daemons.said.map((line) => line.replace(/"demo-\d+" at [^;)]*(; )?/, ''));
    assert.deepEqual(
      [...new Set(own)],
      [
        `waiting for main: several clusters answer (${found.join('; ')}): compare the words with those that odmoe status shows on main, and say which one by --cluster, --main HOST:PORT, or give a token of it`,
      ],
    );
    assert.equal(new Set(daemons.said).size, daemons.said.length, 'nothing is said twice');
  });

  it('knows the authorities that it made, that its daemons joined, and of which its user is an operator', async () => {
    const address = await daemons.startHome();
    await daemons.enterByCode(daemons.settingsOf('worker', { main: address }));
    const lab = await startNewMain(daemons.stateOf('lab-box', 'lab'), 'lab');
    await lab.stop();
    const know = (host: string, operators: string): Promise<ReadonlySet<string>> =>
      knownAuthorities(daemons.stateOf(host, 'any'), operators);
    const none = daemons.stateOf('nobody', 'any');
    assert.deepEqual([...(await know('jetson', none))], [daemons.main?.desk.digest]);
    assert.deepEqual([...(await know('lab-box', none))], [lab.desk.digest]);
    assert.deepEqual([...(await know('nobody', daemons.stateOf('jetson', 'any')))], [daemons.main?.desk.digest]);
    rmSync(join(daemons.stateOf('lab-box', 'lab'), 'nodes'), { recursive: true });
    assert.deepEqual([...(await know('lab-box', none))], [lab.desk.digest]);
    writeFileSync(join(authorityDirectory(daemons.stateOf('lab-box', 'lab')), 'authority.crt'), 'damaged');
    assert.deepEqual([...(await know('lab-box', none))], [], 'files that cannot be read say nothing');
  });

  it('waits where it hears a main without authority, whom anybody may imitate, and ends where his address was given', () => {
    const heard = { address: '10.0.0.5:7600', cluster: 'home', authority: null, socketPath: null };
    const words = /main of "home" at 10\.0\.0\.5:7600 has no authority/;
    assert.match(obstacleTo(heard, daemons.settingsOf('worker', { cluster: 'home' })) ?? '', words);
    const given = daemons.settingsOf('worker', { cluster: 'home', main: heard.address });
    assert.throws(() => obstacleTo(heard, given), { code: 'CONFIG_INVALID', message: words });
  });

  it('says with --insecure that the main which it hears speaks TLS, and goes on', async () => {
    const stateDirectory = daemons.stateOf('box', 'home');
    daemons.main = await startNewMain(stateDirectory, 'home', operatorServices(stateDirectory));
    const settings = daemons.settingsOf('worker', { cluster: 'home', insecure: true }, 'box');
    assert.equal((await daemons.enter(settings)).opened, null);
    assert.deepEqual(daemons.said, [
      `main of "home" at ${daemons.main.address} speaks TLS and uses no worker that was told --insecure: leave that out`,
    ]);
  });

  it('waits where a worker answers at the address, with TLS or without, and says so', async () => {
    const address = await daemons.startHome();
    const network = {
      keepaliveIntervalMs: 500,
      keepaliveTimeoutMs: 700,
      executeTimeoutMs: 1000,
      reconnectDelayMs: 100,
    };
    const options = {
      host: '127.0.0.1',
      port: 0,
      network,
      log: new Lines(),
      node: { identify: () => plainIdentity() },
    };
    const { opened } = await daemons.enterByCode(daemons.settingsOf('worker', { main: address }));
    for (const trust of [null, opened?.trust ?? null]) {
      const worker = await new GrpcTransport(RUNTIME, null, trust).serve(options);
      const abandon = new AbortController();
      daemons.said = [];
      const say = (text: string): void => {
        daemons.said.push(text);
        abandon.abort();
      };
      const settings = daemons.settingsOf('worker', { main: worker.address, lan: true }, 'other');
      await assert.rejects(daemons.enter(settings, { abandoned: abandon.signal, say }), { code: 'CANCELLED' });
      await worker.stop();
      assert.deepEqual(daemons.said, [
        `waiting for main: the daemon at ${worker.address} lets no machines in: give main's address`,
      ]);
    }
  });

  it('waits for main, and says so once', async () => {
    const abandon = new AbortController();
    const entering = daemons.enter(daemons.settingsOf('worker', { main: '127.0.0.1:1', lan: true }), {
      abandoned: abandon.signal,
    });
    setTimeout(() => abandon.abort(), 2500).unref();
    await assert.rejects(entering, { code: 'CANCELLED' });
    assert.deepEqual(daemons.said, ['waiting for main: none answers at 127.0.0.1:1']);
  });

  it('waits for main also on loopback alone, where it has a token from anywhere', async () => {
    await daemons.startHome();
    const variables = { ODMOE_JOIN_TOKEN: await daemons.token() };
    const abandon = new AbortController();
    const settings = daemons.settingsOf('worker', { main: '127.0.0.1:1', host: '127.0.0.1', discovery: 'static' });
    const say = (text: string): void => {
      daemons.said.push(text);
      abandon.abort();
    };
    await assert.rejects(daemons.enter(settings, { variables, abandoned: abandon.signal, say }), { code: 'CANCELLED' });
    assert.deepEqual(daemons.said, ['waiting for main: none answers at 127.0.0.1:1']);
  });

  it('waits for main where an HTTP server answers at the address, and says so', async () => {
    const server = createHttpServer((_, response) => void response.end('page')).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const abandon = new AbortController();
    const say = (text: string): void => {
      daemons.said.push(text);
      abandon.abort();
    };
    const entering = daemons.enter(daemons.settingsOf('worker', { main: address, lan: true }), {
      abandoned: abandon.signal,
      say,
    });
    await assert.rejects(entering, { code: 'CANCELLED' });
    server.close();
    assert.deepEqual(daemons.said, [
      `waiting for main: what answers at ${address} speaks HTTP and is no port for machines (main's page and HTTP API are such): give main's address for machines, usually port 7600`,
    ]);
  });

  it("ends where main's address was given and the token is of another cluster, and names both authorities", async () => {
    const address = await daemons.startHome();
    const lab = await startNewMain(daemons.stateOf('lab-box', 'lab'), 'lab');
    try {
      const { text } = await lab.desk.createToken({ role: 'worker', uses: 1, lifeMs: 60_000 });
      const [here, there] = [daemons.main?.desk.digest.slice(0, 16), lab.desk.digest.slice(0, 16)];
      await assert.rejects(daemons.enter(daemons.settingsOf('worker', { main: address, join: text })), {
        code: 'JOIN_TOKEN_INVALID',
        message: `the token is of the authority ${there}, and those that answer are of others ("home" at ${address} of ${here}): give --main HOST:PORT of the main that made the token, or a token of one of these`,
      });
    } finally {
      await lab.stop();
    }
  });

  it('ends where the token is of another cluster than the named one, and names both', async () => {
    const stateDirectory = daemons.stateOf('box', 'home');
    daemons.main = await startNewMain(stateDirectory, 'home', operatorServices(stateDirectory));
    const join = await daemons.token();
    for (const flags of [{}, { main: daemons.main.address }]) {
      await assert.rejects(
        daemons.enter(daemons.settingsOf('worker', { ...flags, cluster: 'lab', join, lan: true }, 'box')),
        {
          code: 'JOIN_TOKEN_INVALID',
          message: `the token is of "home" (main at ${daemons.main.address}), and the cluster is to be "lab": correct --cluster, or give a token of "lab"`,
        },
      );
    }
  });
});

describe('the choice of the main to join', () => {
  const main = (cluster: string, digest: string | null, socketPath: string | null = null): FoundMain => ({
    address: `${cluster}:7600`,
    cluster,
    authority: digest === null ? null : { cluster, digest, certificate: Buffer.alloc(0) },
    socketPath,
  });
  const any = { cluster: null, authorityDigest: null };
  const home = { cluster: 'home', authorityDigest: null };
  const none = new Set<string>();

  it('is the only one, by whichever ways it was found', () => {
    assert.equal(chooseMain(fittingMains([], any), none), null);
    const bySocket = main('home', 'aa', '/s');
    assert.equal(chooseMain(fittingMains([main('home', 'aa'), bySocket], any), none), bySocket);
  });

  it('is that of the named cluster, or of the authority of the token', () => {
    const mains = [main('home', 'aa'), main('lab', 'bb')];
    assert.deepEqual(fittingMains(mains, { cluster: 'lab', authorityDigest: null }), mains.slice(1));
    assert.deepEqual(fittingMains(mains, { cluster: null, authorityDigest: 'aa' }), mains.slice(0, 1));
    assert.deepEqual(fittingMains(mains, { cluster: 'lab', authorityDigest: 'aa' }), []);
  });

  it('is of several the one whose authority this host knows, beside a stranger of the same name', () => {
    const known = main('home', 'aa');
    const mains = [main('home', 'bb'), known, main('home', null)];
    assert.equal(chooseMain(fittingMains(mains, home), new Set(['aa'])), known);
    const own = main('home', 'cc', '/s');
    assert.equal(chooseMain(fittingMains([...mains, own], home), none), own);
  });

  it('is left to the user where he knows none of several, or more than one', () => {
    assert.equal(chooseMain(fittingMains([main('home', 'aa'), main('home', 'bb')], home), none), null);
    assert.equal(chooseMain(fittingMains([main('home', 'aa'), main('home', null)], home), none), null);
    const mains = [main('home', 'aa'), main('lab', 'bb')];
    assert.equal(chooseMain(fittingMains(mains, any), none), null);
    assert.equal(chooseMain(fittingMains(mains, any), new Set(['aa', 'bb'])), null);
  });
});
