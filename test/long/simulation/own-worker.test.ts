import assert from 'node:assert/strict';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import type { GenerateRequest, NodeStatus } from '../../../shared/wire/messages.js';
import { BLOCK_POSITIONS, DEVICE_BYTES } from '../../../simulator/faults/draw-budget.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../../integration/harness/answers.js';
import type { ClusterPlan } from '../../integration/harness/test-cluster.js';
import { openReference } from '../../integration/harness/test-models.js';
import { stopVirtualCluster, VirtualCluster } from '../../simulation/virtual-cluster.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 33, 60], { maxTokens: 24, logprobs: 300 });
const OWN = 'main-worker';
const LAYERS = 4;
const MODEL_BYTES = DEVICE_BYTES.outerBytes + LAYERS * DEVICE_BYTES.denseLayerBytes;
/** Bytes of one block of rows of a sequence. */
const BLOCK_BYTES = LAYERS * BLOCK_POSITIONS * DEVICE_BYTES.cacheRowBytes;

const ownOf = async (running: VirtualCluster): Promise<NodeStatus> =>
  (await running.status()).nodes.find(({ identity }) => identity.id === OWN) ?? assert.fail('no own worker');

describe('a main with its own worker', () => {
  let reference: LocalEngine;
  let expected: CollectedAnswer;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    reference = await openReference('tiny');
    expected = await collect(reference.generate(REQUEST, new AbortController().signal));
  });

  after(() => {
    reference.dispose();
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  async function begin(experts: NodeSettings['main']['experts'], plan: Partial<ClusterPlan> = {}) {
    const workers = plan.workers ?? 0;
    const main = { ...plan.main, main: { ...plan.main?.main, experts } };
    const running = await VirtualCluster.start({ workers: 0, ...plan, main, ...(workers > 0 ? { workers: 0 } : {}) });
    cluster = running;
    for (let index = 0; index < workers; index += 1) await running.addWorker(`worker-${index}`);
    await running.waitForRoster(workers + 1, plan.shadow === undefined ? 0 : 1);
    return running;
  }

  it('answers alone as one process does', async () => {
    const running = await begin('local');
    assertSameAnswer(await running.ask(REQUEST), expected);
    const { nodes, placement, ownWorkerId } = await running.status();
    assert.equal(ownWorkerId, OWN);
    assert.deepEqual(
      nodes.map(({ identity }) => identity.id),
      ['main', OWN],
    );
    const own = nodes.find(({ identity }) => identity.id === OWN);
    assert.ok(own !== undefined && own.executions > 0 && own.loads > 0);
    assert.deepEqual(
      placement?.workers.map(({ id, address }) => ({ id, address })),
      [{ id: OWN, address: 'main:7600' }],
    );
  });

  for (const drafts of [1, 3]) {
    it(`loads what shadow announces, with ${drafts} rows a pass`, async () => {
      const running = await begin('local', { shadow: 'fp16', main: { drafting: { rows: drafts } } });
      assertSameAnswer(await running.ask(REQUEST), expected);
      const own = (await running.status()).nodes.find(({ identity }) => identity.id === OWN);
      assert.ok(own !== undefined);
      assert.ok(own.reloads < own.executions / 2, `${own.reloads} of ${own.executions} executions were not predicted`);
    });
  }

  it('streams layers through its slots where a batch uses nearly all their experts, without predictions', async () => {
    const requests = Array.from({ length: 12 }, (_, index) =>
      requestFor([5 + 19 * index, 30 + index, 250 - 7 * index], { maxTokens: 16, ignoreEos: true }),
    );
    const unpredicted = async (prefillOverlap: boolean): Promise<number> => {
      const running = await begin('local', { main: { main: { prefillOverlap }, slots: 16 } });
      await running.passing(Promise.all(requests.map((request) => running.ask(request))));
      const { reloads, executions } = await ownOf(running);
      await running.stop();
      cluster = null;
      return reloads / executions;
    };
    const [streamed, asked] = [await unpredicted(true), await unpredicted(false)];
    assert.ok(streamed < 0.25, `${streamed} of the executions were not predicted`);
    assert.ok(asked > 0.9, `${asked} of them without streaming`);
  });

  it('shares its layers with the workers of the LAN, and continues alone when they die', async () => {
    const running = await begin('both', { workers: 2 });
    const answer = await running.ask(REQUEST, undefined, (count) => {
      if (count === 6) for (const id of ['worker-0', 'worker-1']) running.node(id).kill();
    });
    assertSameAnswer(answer, expected);
    await running.waitForRoster(1, 0);
    assertSameAnswer(await running.ask(REQUEST), expected);
  });

  it('uses no worker of the LAN where it runs all experts, and gives the reason', async () => {
    const running = await begin('local');
    await running.addWorker('worker-0');
    await running.sleep(2000);
    const { placement, problems } = await running.status();
    assert.deepEqual(
      placement?.workers.map(({ id }) => id),
      [OWN],
    );
    assert.match(problems.map(({ message }) => message).join('\n'), /main.experts: local.*--experts both/);
  });

  it('counts like any worker where experts have strict homes', async () => {
    const running = await begin('both', { workers: 1, main: { homes: 'strict' } });
    assertSameAnswer(await running.ask(REQUEST), expected);
    const { nodes } = await running.status();
    for (const id of [OWN, 'worker-0']) {
      assert.ok((nodes.find(({ identity }) => identity.id === id)?.executions ?? 0) > 0, `${id} has run no expert`);
    }
  });

  for (const enabled of [true, false]) {
    it(`gives rows the memory of its experts before anybody is refused or preempted (batching: ${enabled})`, async () => {
      const count = 3;
      // A sequence that begins leaves one block to the others.
      const blocks = count + 1;
      const budget = MODEL_BYTES + DEVICE_BYTES.slotSharedBytes + DEVICE_BYTES.slotBytes + blocks * BLOCK_BYTES;
      const running = await begin('local', {
        main: {
          device: { memoryBudgetBytes: budget },
          batching: { enabled },
          slots: 2,
          main: { reusePrefixes: false },
        },
      });
      const requests = Array.from({ length: count }, (_, index) =>
        requestFor([7 + index, 17, 250, 3], { maxTokens: 40 + 8 * index, ignoreEos: true }),
      );
      const wanted: CollectedAnswer[] = [];
      for (const request of requests)
        wanted.push(await collect(reference.generate(request, new AbortController().signal)));
      const before = await ownOf(running);
      assert.ok((before.cache?.bytes ?? 0) > DEVICE_BYTES.slotBytes);
      assert.ok(
        before.deviceMemoryUsedBytes + count * BLOCK_BYTES > budget,
        'rows of all do not fit beside the experts',
      );
      let begun = 0;
      const begunAtEnds: number[] = [];
      const ask = async (request: GenerateRequest): Promise<CollectedAnswer> => {
        const answer = await running.ask(request, undefined, (tokens) => void (begun += tokens === 1 ? 1 : 0));
        begunAtEnds.push(begun);
        return answer;
      };
      const got = await running.passing(Promise.all(requests.map(ask)));
      // Joint passes begin together: all have memory at a time.
      if (enabled) assert.deepEqual(begunAtEnds, [count, count, count]);
      got.forEach((answer, index) => assertSameAnswer(answer, wanted[index] ?? assert.fail()));
      const { passes, nodes } = await running.status();
      assert.equal(passes?.preemptions, 0);
      assert.ok(nodes.every(({ deviceMemoryHighWaterBytes }) => deviceMemoryHighWaterBytes <= budget));
      assert.deepEqual(running.deviceOf('main').violations, []);
      // It takes its memory again when nobody wants it.
      await running.sleep(3000);
      const after = await ownOf(running);
      assert.equal(after.deviceMemoryUsedBytes, before.deviceMemoryUsedBytes);
    });
  }

  /** Answers one after the other and then together, each longer than a block; returns how many experts the plan kept before and after each. */
  async function planWhileAnswering(running: VirtualCluster, requests: readonly GenerateRequest[]): Promise<number[]> {
    const planned = [(await ownOf(running)).cache?.capacities.full ?? assert.fail('no cache')];
    const answers = async (asked: readonly GenerateRequest[]): Promise<void> => {
      const wanted: CollectedAnswer[] = [];
      for (const request of asked)
        wanted.push(await collect(reference.generate(request, new AbortController().signal)));
      const got = await running.passing(Promise.all(asked.map((request) => running.ask(request))));
      got.forEach((answer, index) => assertSameAnswer(answer, wanted[index] ?? assert.fail()));
      planned.push((await ownOf(running)).cache?.capacities.full ?? assert.fail('no cache'));
    };
    await answers(requests);
    assert.equal((await running.status()).passes?.preemptions, 0);
    for (const request of requests) await answers([request]);
    return planned;
  }

  const growing = [0, 1, 2].map((index) =>
    requestFor([7 + index, 17, 250, 3], { maxTokens: 30 + 4 * index, ignoreEos: true }),
  );
  const residency = (more: object = {}) => {
    const blocks = growing.length + 1;
    const bytes = MODEL_BYTES + DEVICE_BYTES.slotSharedBytes + DEVICE_BYTES.slotBytes + blocks * BLOCK_BYTES;
    return {
      device: { memoryBudgetBytes: bytes },
      slots: 2,
      main: { reusePrefixes: false },
      worker: { cachePolicy: 'residency' as const, replanPasses: 3, ...more },
    };
  };

  it('plans its cache again beside growing contexts, and takes more again when they have ended', async () => {
    const running = await begin('local', { main: residency() });
    const planned = await planWhileAnswering(running, growing);
    const [all = 0, afterMany = 0] = planned;
    assert.ok(afterMany < all, `rows of three answers have taken memory of experts: ${planned.join(', ')}`);
    const last = planned.at(-1) ?? 0;
    assert.ok(last > afterMany, `loads are waited for, and memory is free again: ${planned.join(', ')}`);
    const { passes, nodes } = await running.status();
    assert.equal(passes?.preemptions, 0);
    const budget = residency().device.memoryBudgetBytes;
    assert.ok(nodes.every(({ deviceMemoryHighWaterBytes }) => deviceMemoryHighWaterBytes <= budget));
    assert.deepEqual(running.deviceOf('main').violations, []);
  });

  it('gives memory to rows at once, without waiting for the next planning', async () => {
    const running = await begin('local', { main: residency({ replanPasses: 100_000 }) });
    const [, afterMany = 0] = await planWhileAnswering(running, growing);
    const budget = residency().device.memoryBudgetBytes - MODEL_BYTES - DEVICE_BYTES.slotSharedBytes;
    const ofSlots = budget - growing.length * BLOCK_BYTES;
    assert.ok(afterMany > 0 && (2 + afterMany) * DEVICE_BYTES.slotBytes <= ofSlots, `${afterMany} experts are planned`);
  });

  it('does not start where its budget holds no expert beside the model', async () => {
    const tooSmall = { device: { memoryBudgetBytes: 160_000 + 4 * 8000 } };
    await assert.rejects(begin('local', { main: tooSmall }), { code: /DEVICE_OUT_OF_MEMORY|CONFIG_INVALID/ });
  });
});
