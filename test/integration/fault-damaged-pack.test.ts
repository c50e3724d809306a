import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LocalEngine } from '../../engine/generation/index.js';
import { assertSameAnswer, collect, requestFor } from './harness/answers.js';
import { TestCluster, stopCluster } from './harness/test-cluster.js';
import { openReference, packOf } from './harness/test-models.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 33, 60], { maxTokens: 20, logprobs: 300 });

describe('workers whose copy of the pack is damaged', () => {
  let reference: LocalEngine;
  let damaged: string;
  let cluster: TestCluster | null = null;

  before(async () => {
    reference = await openReference('tiny');
    damaged = mkdtempSync(join(tmpdir(), 'odmoe-damaged-'));
    cpSync(await packOf('tiny'), damaged, { recursive: true });
    for (const name of readdirSync(damaged).filter((file) => file.startsWith('experts-'))) {
      const bytes = readFileSync(join(damaged, name));
      // One wrong bit in every 4 KiB, so that each expert of each layer is hit.
      for (let offset = 100; offset < bytes.length; offset += 4096) bytes[offset] = (bytes[offset] ?? 0) ^ 1;
      writeFileSync(join(damaged, name), bytes);
    }
  });

  after(() => {
    reference.dispose();
    rmSync(damaged, { recursive: true, force: true });
  });

  afterEach(async function () {
    await stopCluster(this, cluster);
    cluster = null;
  });

  it('have their work done by the others', async () => {
    cluster = await TestCluster.start({
      workers: 3,
      shadow: 'int8',
      worker: (index) => (index === 1 ? { packDirectory: damaged } : {}),
    });
    const expected = await collect(reference.generate(REQUEST, new AbortController().signal));
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    assert.ok(cluster.log.matching('PACK_CORRUPT').length > 0, 'the damaged worker was asked and said so');
  });

  it('fail the request with PACK_CORRUPT when there is no other, and main goes on', async () => {
    cluster = await TestCluster.start({ workers: 2, worker: () => ({ packDirectory: damaged }) });
    await assert.rejects(cluster.ask(REQUEST), { code: 'PACK_CORRUPT' });
    await cluster.addWorker('whole');
    await cluster.waitForRoster(3, 0);
    const expected = await collect(reference.generate(REQUEST, new AbortController().signal));
    assertSameAnswer(await cluster.ask(REQUEST), expected);
  });
});
