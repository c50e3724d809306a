import assert from 'node:assert/strict';
import type { GenerateRequest } from '../../shared/rpc/messages.js';
import { requestFor } from '../integration/harness/answers.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

/** After so long nothing of a request is left anywhere, whatever was done for it. */
const FREED_WITHIN_MS = 500;
/** A load takes 1 ms else. */
const SLOW_LOADS = 3000;
const WORKERS = ['worker-0', 'worker-1'];
const LONG: GenerateRequest = requestFor([1, 2, 3, 4], { maxTokens: 200 });

describe('a simulated cluster whose clients leave', () => {
  let cluster: VirtualCluster;

  beforeEach(async () => {
    cluster = await VirtualCluster.start({ workers: 2, shadow: 'int8', main: { main: { maxActiveSequences: 1 } } });
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  function openOf(nodes: readonly string[]): Record<string, number> {
    const open = nodes.flatMap((id) =>
      Object.entries(cluster.node(id).openCounts() ?? {}).map(([name, count]) => [`${id} ${name}`, count] as const),
    );
    return Object.fromEntries(open.filter(([, count]) => count > 0));
  }

  /** The client leaves; soon after nobody holds anything for it. */
  async function leave(
    gone: AbortController,
    asking: Promise<unknown>,
    nodes = ['main', 'shadow', ...WORKERS],
  ): Promise<void> {
    assert.notDeepEqual(openOf(nodes), {}, 'something is held before');
    gone.abort();
    await assert.rejects(asking, { code: 'CANCELLED' });
    await cluster.sleep(FREED_WITHIN_MS);
    assert.deepEqual(openOf(nodes), {});
  }

  function slowDown(slowness: number): void {
    for (const id of WORKERS) cluster.deviceOf(id).readSlowness = slowness;
  }

  async function answersAgain(): Promise<void> {
    slowDown(1);
    const { finished } = await cluster.ask(requestFor([1, 2, 3], { maxTokens: 4 }));
    assert.equal(finished.finishReason, 'length');
  }

  for (const prompt of [4, 400]) {
    it(`in prefill of ${prompt} tokens, while experts load for seconds`, async () => {
      slowDown(SLOW_LOADS);
      const gone = new AbortController();
      const tokens = Array.from({ length: prompt }, (_, index) => 1 + (index % 250));
      const asking = cluster.ask(requestFor(tokens, { maxTokens: 20 }), gone.signal);
      asking.catch(() => undefined);
      await cluster.sleep(1000);
      await leave(gone, asking);
      await answersAgain();
    });
  }

  it('in decode, while experts load for seconds', async () => {
    const gone = new AbortController();
    let tokens = 0;
    const asking = cluster.ask(LONG, gone.signal, () => {
      tokens += 1;
      if (tokens === 5) slowDown(SLOW_LOADS);
    });
    asking.catch(() => undefined);
    await cluster.waitUntil('it decodes', () => tokens >= 5);
    await cluster.sleep(1000);
    await leave(gone, asking);
    await answersAgain();
  });

  it('in decode, at the usual speed', async () => {
    const gone = new AbortController();
    let tokens = 0;
    const asking = cluster.ask(LONG, gone.signal, () => void (tokens += 1));
    asking.catch(() => undefined);
    await cluster.waitUntil('it decodes', () => tokens >= 5);
    await leave(gone, asking);
    await answersAgain();
  });

  it('in decode, while a worker has stopped and is not lost yet', async () => {
    const gone = new AbortController();
    let tokens = 0;
    const asking = cluster.ask(LONG, gone.signal, () => void (tokens += 1));
    asking.catch(() => undefined);
    await cluster.waitUntil('it decodes', () => tokens >= 5);
    cluster.node('worker-0').pause();
    await cluster.sleep(100);
    await leave(gone, asking, ['main', 'shadow', 'worker-1']);
    cluster.node('worker-0').resume();
    await cluster.sleep(FREED_WITHIN_MS);
    assert.deepEqual(openOf(['main', 'shadow', ...WORKERS]), {});
  });

  it('while it waits for its turn', async () => {
    const first = cluster.ask(requestFor([1, 2], { maxTokens: 60 }));
    await cluster.waitUntil('one runs', async () => (await cluster.status()).activeSequences === 1);
    const gone = new AbortController();
    const asking = cluster.ask(LONG, gone.signal);
    asking.catch(() => undefined);
    await cluster.waitUntil('one waits', () => cluster.node('main').openCounts()?.['queuedRequests'] === 1);
    gone.abort();
    await assert.rejects(asking, { code: 'CANCELLED' });
    await cluster.sleep(1);
    assert.equal(cluster.node('main').openCounts()?.['queuedRequests'], 0);
    assert.equal(cluster.node('main').openCounts()?.['requests'], 1);
    await first;
  });

  it('while no worker is there', async () => {
    for (const id of WORKERS) await cluster.stopNode(id);
    const gone = new AbortController();
    const asking = cluster.ask(LONG, gone.signal);
    asking.catch(() => undefined);
    await cluster.sleep(300);
    await leave(gone, asking, ['main', 'shadow']);
  });
});
