import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { historyPath } from '../../cli/chat/line-history.js';
import { packsDirectory } from '../../cli/models/pack-places.js';
import { authorityOfFlags, newAuthorityOfFlags } from '../../cli/client/cluster-of-flags.js';
import { joinedClusters } from '../../engine/daemon/cluster-directories.js';
import { parseDaemonFlags } from '../../engine/daemon/parse-daemon-flags.js';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { stateDirectory } from '../../shared/base/files/state-directory.js';
import { isClusterName, isIdentifier, NAMES_BESIDE_CLUSTERS } from '../../shared/base/text/identifier.js';
import { UserDirectories } from './user-directories.js';

describe('the cluster whose authority a command means', () => {
  const here = process.cwd();
  let user: UserDirectories;

  // The directory of the tests has a cluster.yaml.
  beforeEach(() => {
    user = new UserDirectories();
    process.chdir(user.path('.'));
  });

  afterEach(() => {
    process.chdir(here);
    user.remove();
  });

  it('is the named one, else the only one of this host, else odmoe', async () => {
    assert.equal(await authorityOfFlags({}), 'odmoe');
    await createCluster(stateDirectory('home'), 'home');
    assert.equal(await authorityOfFlags({}), 'home');
    assert.equal(await authorityOfFlags({ cluster: 'lab' }), 'lab');
    await createCluster(stateDirectory('lab'), 'lab');
    await assert.rejects(authorityOfFlags({}), { code: 'USAGE', message: /several clusters.*home.*lab.*--cluster/ });
    await createCluster(stateDirectory('odmoe'), 'odmoe');
    assert.equal(await authorityOfFlags({}), 'odmoe');
  });

  it('is for a new authority the named one, else odmoe, unless the host has one of another name', async () => {
    assert.equal(await newAuthorityOfFlags({}), 'odmoe');
    await createCluster(stateDirectory('home'), 'home');
    const message = 'this host has an authority of "home" already: for another one say --cluster NAME';
    await assert.rejects(newAuthorityOfFlags({}), { code: 'USAGE', message });
    assert.equal(await newAuthorityOfFlags({ cluster: 'lab' }), 'lab');
    await createCluster(stateDirectory('odmoe'), 'odmoe');
    assert.equal(await newAuthorityOfFlags({}), 'odmoe');
  });

  it('has no name that files of odmoe have beside the directories of clusters', async () => {
    for (const name of NAMES_BESIDE_CLUSTERS) {
      assert.ok(isIdentifier(name) && !isClusterName(name), name);
      const words = /none of packs, mended, chat-history, which odmoe's own files have/;
      await assert.rejects(authorityOfFlags({ cluster: name }), { code: 'USAGE', message: words });
      assert.throws(() => parseDaemonFlags('worker', ['--cluster', name]), { code: 'USAGE', message: words });
      writeFileSync('cluster.yaml', `cluster: ${name}\n`);
      await assert.rejects(authorityOfFlags({}), { code: 'CONFIG_INVALID', message: words });
      // Experts that were fetched beside the directories of clusters are no cluster.
      mkdirSync(join(stateDirectory(name), 'nodes', 'w1'), { recursive: true });
      writeFileSync(join(stateDirectory(name), 'nodes', 'w1', 'node.crt'), '');
    }
    assert.deepEqual(await joinedClusters(stateDirectory('odmoe'), 'w1'), []);
    assert.ok(isClusterName('packs-2'));
    assert.equal(basename(historyPath()), 'chat-history');
    assert.equal(basename(packsDirectory(undefined)), 'packs');
  });
});
