import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { checkCluster } from '../../cli/doctor/cluster-checks.js';
import { identitiesOnce } from '../../cli/doctor/own-identities.js';
import { loadClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { plainIdentity } from './plain-identity.js';
import { TrustedServers } from './trusted-servers.js';

const TIMEOUT_MS = 5000;

describe("doctor's search for main", function () {
  this.timeout(60_000);
  const servers = new TrustedServers();
  const directory = mkdtempSync(join(tmpdir(), 'odmoe-doctor-'));

  after(async () => {
    await servers.stop();
    rmSync(directory, { recursive: true });
  });

  /** The names of the checks, with a configuration that has main at this address. */
  async function checkedWith(address: string, configuredMain: string | null): Promise<string[]> {
    const path = join(directory, 'cluster.yaml');
    const [host, port] = address.split(':');
    const node = `{id: main, role: main, host: ${host}, port: ${port}}`;
    writeFileSync(path, `cluster: home\nmodel: /no/pack\ndiscovery: {provider: static}\nnodes: [${node}]\n`);
    const config = loadClusterConfig(path);
    const identitiesOf = identitiesOnce(() => ({ daemons: directory, operators: join(directory, 'operators') }));
    const question = { config, cluster: 'home', mainAddress: null, configuredMain, interfaceAddress: null };
    const { checks } = await checkCluster({ ...question, timeoutMs: TIMEOUT_MS }, identitiesOf);
    return checks.filter(({ status }) => status === 'warn').map(({ name }) => name);
  }

  it('takes what answers at the configured address, of another cluster, too, as status does', async () => {
    const identity = plainIdentity({ id: 'main', role: 'ROLE_MAIN', cluster: 'demo-7' });
    const address = await servers.serve(null, { node: { identify: () => identity } });
    assert.ok(!(await checkedWith(address, address)).includes('main node'));
    assert.ok((await checkedWith(address, null)).includes('main node'), 'by mDNS the cluster counts');
  });
});
