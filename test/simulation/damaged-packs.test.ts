import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import { assertSameAnswer, collect, requestFor } from '../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';
import { openReference, packOf } from '../integration/harness/test-models.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 33, 60], { maxTokens: 20, logprobs: 300 });

const POOLS = { full: 3, compressed: 3, signMantissa: 3, exponent: 3 };

describe('simulated workers whose copy of the pack is damaged', () => {
  let reference: LocalEngine;
  let damaged: string;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    reference = await openReference('tiny');
    damaged = mkdtempSync(join(tmpdir(), 'odmoe-damaged-'));
    cpSync(await packOf('tiny'), damaged, { recursive: true });
    damageExperts(damaged);
  });

  after(() => {
    reference.dispose();
    rmSync(damaged, { recursive: true, force: true });
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  it('cause no failed answer', async () => {
    cluster = await VirtualCluster.start({
      workers: 3,
      shadow: 'int8',
      worker: (index) => (index === 1 ? { packDirectory: damaged } : {}),
    });
    const expected = await collect(reference.generate(REQUEST, new AbortController().signal));
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    assert.ok(cluster.log.matching('is damaged and is fetched again').length > 0, 'the damaged worker was asked');
  });

  it('keep undamaged experts in their cache', async () => {
    const own = mkdtempSync(join(tmpdir(), 'odmoe-damaged-later-'));
    try {
      cpSync(await packOf('tiny'), own, { recursive: true });
      const running = (cluster = await VirtualCluster.start({
        workers: 3,
        shadow: 'int8',
        worker: (index) => ({ worker: { pools: POOLS }, ...(index === 1 ? { packDirectory: own } : {}) }),
      }));
      const expected = await collect(reference.generate(REQUEST, new AbortController().signal));
      assertSameAnswer(await running.ask(REQUEST), expected);
      damageExperts(own);
      assertSameAnswer(await running.ask(REQUEST), expected);
      const other = { ...REQUEST, promptTokenIds: [5, 6, 7] };
      assertSameAnswer(
        await running.ask(other),
        await collect(reference.generate(other, new AbortController().signal)),
      );
    } finally {
      rmSync(own, { recursive: true, force: true });
    }
  });

  it('fetch damaged experts from main, and leave their given pack unchanged', async () => {
    const before = digestOf(damaged);
    cluster = await VirtualCluster.start({ workers: 2, worker: () => ({ packDirectory: damaged }) });
    const expected = await collect(reference.generate(REQUEST, new AbortController().signal));
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    assert.equal(digestOf(damaged), before);
    const { nodes, problems } = await cluster.status();
    const workers = nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');
    assert.ok(
      workers.every(({ fetchReceivedBytes, damagedExperts }) => fetchReceivedBytes > 0 && damagedExperts === 0),
    );
    assert.deepEqual(problems, []);
  });

  it('end no answer whose other worker is lost and comes back within the grace period', async () => {
    cluster = await VirtualCluster.start({
      workers: 2,
      main: { main: { workerGraceMs: 20_000 } },
      worker: (index) => (index === 1 ? { packDirectory: damaged } : {}),
    });
    const running = cluster;
    const expected = await collect(reference.generate(REQUEST, new AbortController().signal));
    const answering = running.ask(REQUEST);
    await running.stopNode('worker-0');
    await running.addWorker('worker-0');
    assertSameAnswer(await answering, expected);
  });
});

/** One wrong bit in every 4 KiB, so that each expert of each layer is damaged. */
function damageExperts(directory: string): void {
  for (const name of readdirSync(directory).filter((file) => file.startsWith('experts-'))) {
    const bytes = readFileSync(join(directory, name));
    for (let offset = 100; offset < bytes.length; offset += 4096) bytes[offset] = (bytes[offset] ?? 0) ^ 1;
    writeFileSync(join(directory, name), bytes);
  }
}

/** The digest of the names and contents of all files of a directory. */
function digestOf(directory: string): string {
  const hash = createHash('sha256');
  for (const name of readdirSync(directory).sort()) hash.update(name).update(readFileSync(join(directory, name)));
  return hash.digest('hex');
}
