/** Clusters of this release and of those in releases.json, which `npm run test:releases` has built. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { NEWEST_PROTOCOL } from '../../shared/wire/limits.js';
import { MixedCluster } from '../integration/harness/mixed-cluster.js';
import { MEMBERS, MODEL, type Release, testMixes } from '../integration/harness/release-mixes.js';
import { waitUntil } from '../integration/harness/wait-until.js';

const EARLIER = JSON.parse(readFileSync(join(packageRoot(), 'test', 'releases', 'releases.json'), 'utf8')) as {
  release: string;
  newestProtocol: number;
}[];
const PRESENT: Release = {
  root: packageRoot(),
  environment: {},
  newestProtocol: NEWEST_PROTOCOL,
  release: odmoeVersion(),
};

for (const { release, newestProtocol } of EARLIER) {
  const root = join(packageRoot(), 'build', 'releases', release);
  const earlier: Release = { root, environment: {}, newestProtocol, release };

  describe(`a cluster in plaintext of this release and ${release}`, () => {
    testMixes('plaintext', () => ({ older: earlier, newer: PRESENT }));
  });

  describe(`a cluster with an authority refuses daemons of ${release}, and says so:`, () => {
    let cluster: MixedCluster;

    before(async () => {
      cluster = await MixedCluster.start(MODEL, 'authority', new Map(MEMBERS.map((id) => [id, PRESENT])));
    });

    after(() => cluster.end());

    const said = async (words: string): Promise<void> =>
      waitUntil(`a daemon says "${words}"`, () => cluster.log.matching(words).length > 0);

    it('a worker, by the log of main', async () => {
      await cluster.restartAs('worker-0', earlier);
      await said('it speaks no TLS: a daemon of release 0.2 or older');
      const { placement } = await cluster.status();
      assert.deepEqual(placement?.workers.map(({ id }) => id).sort(), ['worker-1', 'worker-2']);
    });

    it('a main, by the logs of worker and shadow', async () => {
      await cluster.restartAs('main', earlier);
      const words = 'speaks no TLS: its cluster has no authority';
      const by = (id: string): boolean => cluster.log.matching(` ${id}: `).some((line) => line.includes(words));
      await waitUntil('worker and shadow say why', () => by('worker-1') && by('shadow'));
    });
  });
}
