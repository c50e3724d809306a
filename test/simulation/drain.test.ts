import assert from 'node:assert/strict';
import type { MessageTap } from '../../simulator/network/channel.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const PROMPT = Array.from({ length: 40 }, (_, index) => 1 + ((index * 37) % 250));
const REQUEST = requestFor(PROMPT, { maxTokens: 24, logprobs: 5 });
const WORKERS = ['worker-0', 'worker-1', 'worker-2'];

describe('a simulated cluster of which nodes are drained', () => {
  let expected: CollectedAnswer;
  let cluster: VirtualCluster;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  /** Counts what main asks of each node. */
  function countOrders(): Map<string, number> {
    const orders = new Map<string, number>();
    const tap: MessageTap = (way, from, to, { kind }) => {
      const isOrder = kind === 'execute' || kind === 'announce' || kind === 'begin' || kind === 'token';
      if (way === 'sent' && from === 'main' && isOrder) orders.set(to, (orders.get(to) ?? 0) + 1);
    };
    cluster.simulated.network.tap = tap;
    return orders;
  }

  const drained = async (id: string): Promise<void> => {
    await cluster.drain(id);
    await cluster.waitUntil(`${id} may go`, async () => {
      const { drained: nodes } = await cluster.status();
      return nodes?.find((node) => node.id === id)?.state === 'may go';
    });
  };

  const placedIds = async (): Promise<string[]> => {
    const { placement } = await cluster.status();
    return (placement?.workers ?? []).map(({ id }) => id);
  };

  for (const homes of ['group', 'strict'] as const) {
    it(`answers to the bit while workers are drained, stopped and started one after another (homes ${homes})`, async () => {
      cluster = await VirtualCluster.start({ workers: WORKERS.length, shadow: 'int8', main: { homes } });
      const orders = countOrders();
      const due = new Map(WORKERS.map((id, index) => [4 + 6 * index, id]));
      const answer = cluster.ask(REQUEST, undefined, async (count) => {
        const id = due.get(count);
        if (id === undefined) return;
        await drained(id);
        const before = orders.get(id);
        assert.ok(before !== undefined && before > 0, `${id} did work before`);
        await cluster.sleep(20);
        assert.equal(orders.get(id), before, `${id} gets nothing when it may go`);
        cluster.node(id).kill();
        await cluster.startAgain(id);
        await cluster.waitForRoster(WORKERS.length, 1);
      });
      assertSameAnswer(await answer, expected);
      const { drained: left, problems } = await cluster.status();
      assert.deepEqual(left, []);
      assert.ok(!problems.some(({ code }) => code === 'WORKER_LOST'));
      assert.deepEqual(await placedIds(), WORKERS);
    });
  }

  it('leaves a drained worker alone under load, and gives it work again when that is undone', async () => {
    cluster = await VirtualCluster.start({ workers: 2 });
    const orders = countOrders();
    await drained('worker-0');
    const before = orders.get('worker-0') ?? 0;
    const answers = [1, 2, 3].map(() => cluster.ask(REQUEST));
    for (const answer of await Promise.all(answers)) assertSameAnswer(answer, expected);
    assert.equal(orders.get('worker-0') ?? 0, before);
    assert.equal(await cluster.drain('worker-0', true), null);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    assert.ok((orders.get('worker-0') ?? 0) > before);
  });

  it('keeps the only worker at work and says so, and lets it go when another one is there', async () => {
    cluster = await VirtualCluster.start({ workers: 1 });
    assert.equal((await cluster.drain('worker-0'))?.state, 'needed');
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    await cluster.addWorker('worker-1');
    await drained('worker-0');
    assert.deepEqual(await placedIds(), ['worker-1']);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
  });

  it('goes on without a drained shadow, which holds nothing any more, and follows it again later', async () => {
    cluster = await VirtualCluster.start({ workers: 2, shadow: 'int8' });
    const orders = countOrders();
    let before = 0;
    const answer = cluster.ask(REQUEST, undefined, async (count) => {
      if (count !== 6) return;
      assert.equal((await cluster.drain('shadow'))?.state, 'may go');
      before = orders.get('shadow') ?? 0;
      await cluster.waitUntil('the shadow has dropped the answer', () => {
        return (cluster.node('shadow').openCounts()?.['sequences'] ?? 0) === 0;
      });
    });
    assertSameAnswer(await answer, expected);
    assert.ok(before > 0);
    assert.equal(orders.get('shadow'), before);
    await cluster.drain('shadow', true);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    assert.ok((orders.get('shadow') ?? 0) > before);
  });
});
