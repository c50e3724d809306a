import assert from 'node:assert/strict';
import { CLOCK_ROWS } from './trust-proof/clock-rows.js';
import { IDENTITY_ROWS } from './trust-proof/identity-rows.js';
import { JOINING_ROWS } from './trust-proof/joining-rows.js';
import { PLAINTEXT_ROWS } from './trust-proof/plaintext-rows.js';
import { ProofCluster } from './trust-proof/proof-cluster.js';
import { SECRECY_ROWS } from './trust-proof/secrecy-rows.js';
import { SOCKET_ROWS } from './trust-proof/socket-rows.js';

/** The rows of one cluster run in this order: some remove a machine for good, and main, started again by the rows of clocks, has counted no tries to join. */
const ROWS = [...PLAINTEXT_ROWS, ...IDENTITY_ROWS, ...SECRECY_ROWS, ...SOCKET_ROWS, ...JOINING_ROWS, ...CLOCK_ROWS];

describe('nobody gets into a cluster of daemons who was not let in', function () {
  this.timeout(180_000);
  let cluster: ProofCluster | null = null;

  before(async () => {
    cluster = await ProofCluster.start();
  });

  after(() => cluster?.stop());

  afterEach(function () {
    if (this.currentTest?.state === 'failed') cluster?.log.print();
  });

  for (const row of ROWS) {
    const { done, here, there, status } = row;
    it(done, async () => {
      assert.ok(cluster !== null);
      const from = there === null ? 0 : cluster.countOf(there.of);
      const seen = await row.act(cluster);
      assert.match(seen.said, here);
      assert.equal(seen.status, status, seen.said);
      if (there !== null) await cluster.waitForWords(there.of, there.say, from);
    });
  }
});
