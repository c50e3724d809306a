import assert from 'node:assert/strict';
import { joinMain } from '../../shared/transport/node-clients.js';
import { GREETINGS_OF_PEER } from '../../shared/wire/limits.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { stopVirtualCluster, VIRTUAL_LIMIT_MS, VirtualCluster } from './virtual-cluster.js';

describe('a simulated host that joins again and again', () => {
  let cluster: VirtualCluster;

  beforeEach(async () => {
    cluster = await VirtualCluster.start({ workers: 1 });
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  it('is refused in words, and another host is not', async () => {
    const main = (await cluster.status()).nodes[0]?.identity ?? assert.fail('main tells of itself');
    const joinFrom = async (host: string): Promise<string> => {
      const identity: NodeIdentity = { ...main, role: 'ROLE_WORKER', id: host, address: ':7601', cluster: 'another' };
      const { transport } = cluster.host(host);
      const reply = await cluster.passing(joinMain(transport, cluster.mainAddress, identity, VIRTUAL_LIMIT_MS));
      return reply.kind === 'refusal' ? reply.refusal.message : 'welcome';
    };
    let words = '';
    for (let asked = 0; asked < 4 * GREETINGS_OF_PEER.burst && !words.includes('too often'); asked += 1) {
      words = await joinFrom('rogue');
    }
    assert.match(words, /asks to join too often/);
    assert.match(await joinFrom('neighbour'), /the cluster name is "another"/);
  });
});
