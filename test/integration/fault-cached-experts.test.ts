import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LocalEngine } from '../../engine/generation/index.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from './harness/answers.js';
import { ProcessCluster, endCluster } from './harness/process-cluster.js';
import { TestCluster, stopCluster } from './harness/test-cluster.js';
import { openReference, packOf } from './harness/test-models.js';
import { waitUntil } from './harness/wait-until.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 120, logprobs: 300 });
const POOLS = { full: 3, compressed: 3, signMantissa: 3, exponent: 3 };

describe('workers that cache experts and fail', () => {
  let reference: LocalEngine;
  let directory: string;
  let processes: ProcessCluster | null = null;
  let cluster: TestCluster | null = null;

  before(async () => {
    reference = await openReference('tiny');
    directory = mkdtempSync(join(tmpdir(), 'odmoe-cached-'));
  });

  after(() => {
    reference.dispose();
    rmSync(directory, { recursive: true, force: true });
  });

  afterEach(async function () {
    await endCluster(this, processes);
    await stopCluster(this, cluster);
    processes = null;
    cluster = null;
  });

  const answerTo = (request: typeof REQUEST): Promise<CollectedAnswer> =>
    collect(reference.generate(request, new AbortController().signal));

  /** A worker process that has the pack, and whose records are this test's. */
  const startCaching = async (running: ProcessCluster, id: string): Promise<void> => {
    const flags = ['--model', await packOf('tiny'), '--cache', '600 KB', '--slots', '1', '--memory-budget', '1 MB'];
    await running.startFreshWorker(id, { flags, environment: { XDG_STATE_HOME: directory } });
  };

  it('killed (SIGKILL): the answer goes on, and the worker comes back with what it had counted', async () => {
    const running = (processes = await ProcessCluster.start('tiny', 0, true));
    for (const id of ['a', 'b', 'c']) await startCaching(running, id);
    await running.waitForRoster(3, 1);
    const expected = await answerTo(REQUEST);
    const answer = await running.ask(REQUEST, (count) => {
      if (count === 20) running.daemon('b').signal('SIGKILL');
    });
    assertSameAnswer(answer, expected);
    await running.daemon('c').end();
    await running.waitForRoster(1, 1);
    for (const id of ['b', 'c']) await startCaching(running, id);
    await running.waitForRoster(3, 1);
    assertSameAnswer(await running.ask(REQUEST), expected);
    await waitUntil('all three have told what they cache', async () => {
      const caches = (await running.status()).nodes.flatMap(({ cache }) => cache ?? []);
      return caches.length === 3 && caches.every(({ hits, misses }) => hits.full + hits.signMantissa + misses > 0);
    });
    const records = running.logged('cache planned').map((line) => /recordedActivations["=:]+(\d+)/.exec(line)?.[1]);
    assert.deepEqual(records.slice(0, 3), ['0', '0', '0'], 'everybody began without a record');
    assert.ok(
      records.slice(3).some((count) => Number(count) > 0),
      `a stopped worker took its counts up: ${records.join()}`,
    );
  });

  it('with damaged storage: what is kept of an expert is whole, what is not is reported, and others take over', async () => {
    const damaged = join(directory, 'damaged');
    cpSync(await packOf('tiny'), damaged, { recursive: true });
    const running = (cluster = await TestCluster.start({
      ...{ workers: 3, shadow: 'int8' },
      worker: (index) => ({ worker: { pools: POOLS }, ...(index === 1 ? { packDirectory: damaged } : {}) }),
    }));
    const request = { ...REQUEST, maxTokens: 30 };
    const expected = await answerTo(request);
    assertSameAnswer(await running.ask(request), expected);
    for (const name of readdirSync(damaged).filter((file) => file.startsWith('experts-'))) {
      const bytes = readFileSync(join(damaged, name));
      for (let offset = 100; offset < bytes.length; offset += 4096) bytes[offset] = (bytes[offset] ?? 0) ^ 1;
      writeFileSync(join(damaged, name), bytes);
    }
    assertSameAnswer(await running.ask(request), expected);
    assertSameAnswer(
      await running.ask({ ...request, promptTokenIds: [5, 6, 7] }),
      await answerTo({ ...request, promptTokenIds: [5, 6, 7] }),
    );
    assert.ok(running.log.matching('PACK_CORRUPT').length > 0, 'the damaged worker was asked for what it had not kept');
  });
});
