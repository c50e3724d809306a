import assert from 'node:assert/strict';
import { authorityOfFlags } from '../../cli/client/cluster-of-flags.js';
import { createCluster } from '../../engine/trust/create-cluster.js';
import { stateDirectory } from '../../shared/base/files/state-directory.js';
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
});
