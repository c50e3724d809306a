import { socketAddress } from '../../shared/wire/addresses.js';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { rename } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { findMain, type MainFlags } from '../../cli/client/find-main.js';
import { requirePlaintextAllowed } from '../../cli/client/known-clusters.js';
import { noWayWords } from '../../cli/client/operator-access.js';
import { readAuthorityFiles } from '../../engine/trust/authority-files.js';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { forgetIdentity, readIdentity, storeRoster } from '../../engine/trust/identity-files.js';
import { signRoster } from '../../engine/trust/roster.js';
import { operatorDirectory, operatorSocketPath, stateDirectory } from '../../shared/base/files/state-directory.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import { plainIdentity } from './plain-identity.js';
import { joinWithFiles, operatorServices, startNewMain, type StoredMain } from './stored-main.js';
import { TrustedServers } from './trusted-servers.js';
import { UserDirectories } from './user-directories.js';

const TIMEOUT_MS = 5000;
const TO_JOIN = 'odmoe operator add NAME, then here ODMOE_JOIN_TOKEN=TOKEN odmoe operator join --id NAME';

describe('the way to main', () => {
  let user: UserDirectories;
  let mains: StoredMain[];

  beforeEach(() => {
    user = new UserDirectories();
    mains = [];
  });

  afterEach(async () => {
    await Promise.all(mains.map((main) => main.stop()));
    user.remove();
  });

  async function startMain(cluster: string): Promise<StoredMain> {
    const directory = stateDirectory(cluster);
    const main = await startNewMain(directory, cluster, operatorServices(directory));
    mains.push(main);
    return main;
  }

  async function askedMain(flags: MainFlags): Promise<{ id: string; address: string }> {
    const { address, transport } = await findMain(flags);
    return { id: (await identifyPeer(transport, address, TIMEOUT_MS)).id, address };
  }

  const socketOf = (cluster: string): string => socketAddress(operatorSocketPath(stateDirectory(cluster)));

  it("is the operator's socket on main's host", async () => {
    await startMain('home');
    assert.deepEqual(await askedMain({}), { id: 'box', address: socketOf('home') });
    assert.deepEqual(await askedMain({ cluster: 'home' }), { id: 'box', address: socketOf('home') });
  });

  it('is that of the named cluster where several run on this host, and one must be named', async () => {
    await startMain('home');
    await startMain('work');
    assert.equal((await findMain({ cluster: 'work' })).address, socketOf('work'));
    await assert.rejects(findMain({}), {
      code: 'USAGE',
      message: /2 clusters .*\n {2}--cluster home\n {2}--cluster work/,
    });
  });

  it('passes over the files of a cluster whose main does not run', async () => {
    await startMain('home');
    await createCluster(stateDirectory('old'), 'old');
    assert.equal((await findMain({})).address, socketOf('home'));
  });

  it("is the operator's socket where the address is that of this host's main", async () => {
    const main = await startMain('home');
    assert.deepEqual(await askedMain({ main: main.address }), { id: 'box', address: socketOf('home') });
  });

  it('is plaintext where main speaks no TLS', async () => {
    const servers = new TrustedServers();
    try {
      const identify = () => plainIdentity({ id: 'plain', role: 'ROLE_MAIN' });
      const address = await servers.serve(null, { node: { identify } });
      assert.deepEqual(await askedMain({ main: address }), { id: 'plain', address });
      assert.deepEqual(servers.log.warnings, []);
    } finally {
      await servers.stop();
    }
  });

  async function servePlaintext(servers: TrustedServers, cluster: string): Promise<string> {
    const identify = () => plainIdentity({ id: 'rogue', role: 'ROLE_MAIN', cluster });
    return servers.serve(null, { node: { identify } });
  }

  it("is no main in plaintext of the name of a cluster whose operator this user is, and by --insecure it's that", async () => {
    const main = await startMain('home');
    user.moveTo('laptop');
    const { text } = await main.desk.createToken({ role: 'operator', uses: 1, lifeMs: 60_000 });
    await joinWithFiles(main.address, text, {
      id: 'anna',
      role: 'operator',
      stateDirectory: operatorDirectory('home'),
    });
    await main.stop();
    const servers = new TrustedServers();
    try {
      const posing = await servePlaintext(servers, 'home');
      await assert.rejects(findMain({ main: posing }), {
        code: 'TLS_MISMATCH',
        message: /a main of "home" answers at 127.* in plaintext, but "home" has an authority: somebody may pose/,
      });
      assert.deepEqual(await askedMain({ main: posing, insecure: true }), { id: 'rogue', address: posing });
      const other = await servePlaintext(servers, 'other');
      assert.deepEqual(await askedMain({ main: other }), { id: 'rogue', address: other });
    } finally {
      await servers.stop();
    }
  });

  it('is refused to those that are no operators, with what to do', async () => {
    const { address } = await startMain('home');
    user.moveTo('laptop');
    await assert.rejects(findMain({ main: address }), {
      code: 'TRUST_REFUSED',
      message: `main of "home" at ${address} lets only operators ask: run this as the user who runs main, or become an operator: that user says ${TO_JOIN}`,
    });
  });

  it('is named to those that are no operators on another host, and the token is no argument there', () => {
    const elsewhere = { address: '192.0.2.7:7600', cluster: 'home', isHere: false, socketPath: null };
    const words = `main of "home" at 192.0.2.7:7600 lets only operators ask: on its host say ${TO_JOIN}`;
    assert.equal(noWayWords(elsewhere), words);
    assert.equal(noWayWords({ ...elsewhere, socketPath: '/old/control.sock' }), words);
  });

  it('is missing on its own host while the socket is gone, with what to do', async () => {
    const { address } = await startMain('home');
    const path = operatorSocketPath(stateDirectory('home'));
    await rename(path, `${path}.away`);
    await assert.rejects(findMain({ main: address }), {
      code: 'TRUST_REFUSED',
      message: `main of "home" at ${address} runs on this host, and its operator's socket ${path} is gone or not its own: start main again, which makes it anew`,
    });
  });

  it("is an operator's certificate from elsewhere, until the operator is removed", async () => {
    const { address, desk } = await startMain('home');
    user.moveTo('laptop');
    const { text } = await desk.createToken({ role: 'operator', uses: 1, lifeMs: 60_000, name: 'anna' });
    const anna = { id: 'anna', role: 'operator', stateDirectory: operatorDirectory('home') } as const;
    await joinWithFiles(address, text, anna);
    assert.deepEqual(await askedMain({ main: address }), { id: 'box', address });
    await desk.removeNode('anna');
    await assert.rejects(askedMain({ main: address }), {
      code: 'TRUST_REFUSED',
      message:
        /operator anna was removed from "home".* on main's host odmoe operator add anna makes a token, then here ODMOE_JOIN_TOKEN=TOKEN odmoe operator join --id anna/,
    });
  });

  it("keeps the newest roster of main beside an operator's certificate, so that a renewed key is shown no more than it has to be", async () => {
    const { address, desk } = await startMain('home');
    const files = await readAuthorityFiles(stateDirectory('home'), 'home');
    assert.ok(files !== null);
    user.moveTo('laptop');
    const directory = operatorDirectory('home');
    for (const id of ['anna', 'bob', 'carl']) {
      const { text } = await desk.createToken({ role: 'operator', uses: 1, lifeMs: 60_000 });
      await joinWithFiles(address, text, { id, role: 'operator', stateDirectory: directory });
      if (id !== 'anna') await forgetIdentity(directory, id);
    }
    const joined = await readIdentity(directory, 'anna');
    assert.ok(joined !== null);
    const { roster } = joined;
    const entries = roster.entries.map((entry) =>
      entry.id === 'anna' ? { ...entry, renewedAt: entry.since, previousKeyDigest: 'a1'.repeat(32) } : entry,
    );
    await storeRoster(directory, 'anna', signRoster({ ...roster, count: roster.count + 1, entries }, files.authority));
    await findMain({ main: address });
    const kept = await readIdentity(directory, 'anna');
    assert.equal(kept?.roster.count, roster.count + 2);
    assert.ok(kept?.roster.entries.every(({ previousKeyDigest }) => previousKeyDigest === undefined));
  });

  it('takes no certificate of another cluster with the same name', async () => {
    const { address, desk } = await startMain('home');
    user.moveTo('laptop');
    const { text } = await desk.createToken({ role: 'operator', uses: 1, lifeMs: 60_000 });
    await joinWithFiles(address, text, { id: 'anna', role: 'operator', stateDirectory: operatorDirectory('home') });
    user.moveTo('other-host');
    const other = await startMain('home');
    user.moveTo('laptop');
    await assert.rejects(findMain({ main: other.address }), { code: 'TRUST_REFUSED', message: /only operators ask/ });
  });

  it("is missing at the address of an HTTP server, such as main's page, and that is said", async () => {
    const server = createServer((_, response) => void response.end('page')).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    await assert.rejects(findMain({ main: `127.0.0.1:${port}` }), {
      code: 'NO_MAIN',
      message: new RegExp(`^what answers at 127.0.0.1:${port} speaks HTTP and is no port for machines`),
    });
    server.close();
  });

  it('is missing where nothing listens', async () => {
    await assert.rejects(findMain({ main: '127.0.0.1:1' }), { code: 'NO_MAIN' });
    await assert.rejects(findMain({ main: 'nonsense' }), { code: 'USAGE' });
  });
});

describe('a main in plaintext', () => {
  const known = [{ name: 'home', authority: '0123456789abcdef' }];
  const elsewhere = { address: '192.168.1.9:7600', cluster: 'lab' };

  it('is asked by a user who knows no cluster with an authority', () => {
    requirePlaintextAllowed(elsewhere, []);
  });

  it('is asked on this machine, unless it has the name of a cluster with an authority', () => {
    requirePlaintextAllowed({ address: '127.0.0.1:7600', cluster: 'lab' }, known);
    requirePlaintextAllowed({ address: '[::1]:7600', cluster: 'lab' }, known);
    const posing = { address: '127.0.0.1:7600', cluster: 'home' };
    assert.throws(() => requirePlaintextAllowed(posing, known), { code: 'TLS_MISMATCH' });
  });

  it('is not asked on another machine by a user who knows a cluster with an authority, whatever its name', () => {
    assert.throws(() => requirePlaintextAllowed(elsewhere, known), {
      code: 'TLS_MISMATCH',
      message: /"lab" at 192\.168\.1\.9:7600 has no authority, and the clusters that you know \("home"\) have one/,
    });
  });
});
