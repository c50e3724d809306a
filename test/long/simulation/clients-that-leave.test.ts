import assert from 'node:assert/strict';
import type { GenerateRequest } from '../../../shared/wire/messages.js';
import { SeededRandom } from '../../../shared/base/runtime/seeded-random.js';
import { requestFor } from '../../integration/harness/answers.js';
import type { SettingsChanges } from '../../integration/harness/test-settings.js';
import { stopVirtualCluster, VirtualCluster } from '../../simulation/virtual-cluster.js';

/** After so long nothing of a request is left anywhere, whatever was done for it. */
const FREED_WITHIN_MS = 500;
/** A load takes 1 ms else. */
const SLOW_LOADS = 3000;
const DRAWN = 18;
const WORKERS = ['worker-0', 'worker-1'];
const LONG: GenerateRequest = requestFor([1, 2, 3, 4], { maxTokens: 200 });

describe('a simulated cluster frees everything when a client leaves', () => {
  let cluster: VirtualCluster;

  const start = async (main: SettingsChanges = { main: { maxActiveSequences: 1 } }): Promise<void> => {
    cluster = await VirtualCluster.start({ workers: 2, shadow: 'int8', main });
  };

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

  /** Asks for a long answer; `asking` fails when its client leaves. */
  async function askUntilItDecodes(signal: AbortSignal): Promise<{ asking: Promise<unknown> }> {
    let tokens = 0;
    const asking = cluster.ask(LONG, signal, () => void (tokens += 1));
    asking.catch(() => undefined);
    await cluster.waitUntil('it decodes', () => tokens >= 5);
    return { asking };
  }

  async function answersAgain(): Promise<void> {
    slowDown(1);
    const { finished } = await cluster.ask(requestFor([1, 2, 3], { maxTokens: 4 }));
    assert.equal(finished.finishReason, 'length');
  }

  for (const prompt of [4, 400]) {
    it(`in prefill of ${prompt} tokens, while experts load for seconds`, async () => {
      await start();
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
    await start();
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
    await start();
    const gone = new AbortController();
    const { asking } = await askUntilItDecodes(gone.signal);
    await leave(gone, asking);
    await answersAgain();
  });

  it('in decode, while a worker has stopped and is not yet lost', async () => {
    await start();
    const gone = new AbortController();
    const { asking } = await askUntilItDecodes(gone.signal);
    cluster.node('worker-0').pause();
    await cluster.sleep(100);
    await leave(gone, asking, ['main', 'shadow', 'worker-1']);
    cluster.node('worker-0').resume();
    await cluster.sleep(FREED_WITHIN_MS);
    assert.deepEqual(openOf(['main', 'shadow', ...WORKERS]), {});
  });

  it('while it waits for its turn', async () => {
    await start();
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

  it('while no worker is connected', async () => {
    await start();
    for (const id of WORKERS) await cluster.stopNode(id);
    const gone = new AbortController();
    const asking = cluster.ask(LONG, gone.signal);
    asking.catch(() => undefined);
    await cluster.sleep(300);
    await leave(gone, asking, ['main', 'shadow']);
  });

  for (const [what, main] of [
    ['without drafts', { main: { maxActiveSequences: 2 } }],
    ['with drafts', { main: { maxActiveSequences: 2 }, drafting: { optimistic: true, rows: 4 }, spread: 'all' }],
    ['whose experts have homes', { main: { maxActiveSequences: 2 }, homes: 'strict' }],
  ] as const) {
    it(`at any moment, from a cluster ${what}`, async () => {
      await start(main);
      const random = new SeededRandom(DRAWN);
      for (let draw = 0; draw < DRAWN; draw++) {
        slowDown([1, 1, 20, SLOW_LOADS][random.int(4)] ?? 1);
        const leaving = Array.from({ length: 1 + random.int(4) }, () => {
          const gone = new AbortController();
          const tokens = Array.from({ length: 1 + random.int(300) }, () => 1 + random.int(250));
          const asking = cluster.ask(requestFor(tokens, { maxTokens: 150 }), gone.signal).then(
            () => null,
            ({ code }: { code: string }) => code,
          );
          return { gone, asking };
        });
        await cluster.sleep(random.int(300));
        for (const { gone } of leaving) gone.abort();
        const codes = await Promise.all(leaving.map(({ asking }) => asking));
        for (const code of codes) assert.ok([null, 'CANCELLED', 'QUEUE_FULL'].includes(code), `${code}`);
        await cluster.sleep(FREED_WITHIN_MS);
        assert.deepEqual(openOf(['main', 'shadow', ...WORKERS]), {}, `after draw ${draw}`);
      }
      await answersAgain();
    });
  }
});
