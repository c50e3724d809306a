import assert from 'node:assert/strict';
import { findMain } from '../../cli/client/find-main.js';
import { operatorDirectory } from '../../cli/client/operator-access.js';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { operatorSocketPath, stateDirectory } from '../../shared/base/files/state-directory.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import { socketAddress } from '../../shared/transport/operator-socket.js';
import { plainIdentity } from './plain-identity.js';
import { joinWithFiles, operatorServices, startNewMain, type StoredMain } from './stored-main.js';
import { TrustedServers } from './trusted-servers.js';
import { UserDirectories } from './user-directories.js';

const TIMEOUT_MS = 5000;

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

  async function askedMain(flags: { main?: string; cluster?: string }): Promise<{ id: string; address: string }> {
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

  it('is refused to those that are no operators, with what to do', async () => {
    const { address } = await startMain('home');
    user.moveTo('laptop');
    await assert.rejects(findMain({ main: address }), {
      code: 'TRUST_REFUSED',
      message: `main of "home" at ${address} lets only operators ask: on its host say odmoe operator add NAME, then here odmoe operator join TOKEN`,
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
      message: /node anna was removed from "home".*odmoe operator join TOKEN/,
    });
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

  it('is missing where nothing listens', async () => {
    await assert.rejects(findMain({ main: '127.0.0.1:1' }), { code: 'NO_MAIN' });
    await assert.rejects(findMain({ main: 'nonsense' }), { code: 'USAGE' });
  });
});
