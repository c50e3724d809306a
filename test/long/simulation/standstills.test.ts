import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../../integration/harness/answers.js';
import type { ClusterPlan } from '../../integration/harness/test-cluster.js';
import { openReference } from '../../integration/harness/test-models.js';
import { stopVirtualCluster, VirtualCluster } from '../../simulation/virtual-cluster.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 33, 60], { maxTokens: 24, logprobs: 5 });
const LONG_PROMPT = requestFor(
  Array.from({ length: 200 }, (_, index) => 1 + ((7 * index) % 250)),
  { maxTokens: 8, logprobs: 5 },
);
/** As daemons have it where nobody has configured anything. */
const NETWORK: Partial<NodeSettings['network']> = {
  keepaliveIntervalMs: 500,
  keepaliveTimeoutMs: 700,
  executeTimeoutMs: 30_000,
  reconnectDelayMs: 250,
};
/** Longer than each bound of main's, and longer than each bound of those who wait for it. */
const STOPS_MS = [35_000, 200_000];
/** Standstills of main alone: experts, length and moment. */
const MAIN_STOPS = [
  ['workers', 20_000, 'an answer'],
  ['workers', 35_000, 'an answer'],
  ['workers', 35_000, 'a prompt'],
  ['both', 200_000, 'an answer'],
  ['both', 35_000, 'a prompt'],
  ['local', 35_000, 'an answer'],
  ['local', 200_000, 'a prompt'],
] as const;
/** After this time without main its peers end their streams. */
const PEERS_GIVE_UP_MS = 30_000;
/** From the moment it goes on until a short answer is complete. */
const SERVES_AGAIN_MS = 5000;

describe('a process that stands still:', () => {
  let reference: LocalEngine;
  let cluster: VirtualCluster | null = null;
  const expected = new Map<object, CollectedAnswer>();

  before(async () => {
    reference = await openReference('tiny');
    for (const request of [REQUEST, LONG_PROMPT]) {
      expected.set(request, await collect(reference.generate(request, new AbortController().signal)));
    }
  });

  after(() => reference.dispose());

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  async function begin(
    experts: NodeSettings['main']['experts'],
    plan: Partial<ClusterPlan> = {},
  ): Promise<VirtualCluster> {
    const workers = experts === 'local' ? 0 : 2;
    const running = await VirtualCluster.start({
      workers: 0,
      ...plan,
      main: { network: NETWORK, ...plan.main, main: { experts, ...plan.main?.main } },
    });
    cluster = running;
    for (let index = 0; index < workers; index += 1) await running.addWorker(`worker-${index}`, { network: NETWORK });
    await running.waitForRoster(workers + (experts === 'workers' ? 0 : 1), plan.shadow === undefined ? 0 : 1);
    return running;
  }

  /** Stops the nodes at once, as SIGSTOP or a lid does. */
  async function standStill(running: VirtualCluster, ids: readonly string[], forMs: number): Promise<void> {
    for (const id of ids) running.node(id).pause();
    await running.sleep(forMs);
    for (const id of ids) running.node(id).resume();
  }

  const answersIn = async (running: VirtualCluster, limitMs: number): Promise<void> => {
    const beganMs = running.nowMs;
    assertSameAnswer(await running.ask(REQUEST), expected.get(REQUEST) ?? assert.fail());
    const tookMs = running.nowMs - beganMs;
    assert.ok(tookMs <= limitMs, `an answer took ${tookMs} ms, and ${limitMs} are allowed`);
  };

  for (const [experts, stopMs, when] of MAIN_STOPS) {
    const name = `main with experts "${experts}", for ${stopMs / 1000} s in the middle of ${when}, goes on with it to the bit and blames nobody`;
    it(`a cluster whose main stood still recovers: ${name}`, async () => {
      const request = when === 'an answer' ? REQUEST : LONG_PROMPT;
      const running = await begin(experts, { shadow: 'int8' });
      const isDecoding = request === REQUEST;
      let tokens = 0;
      const answer = running.patiently(request, () => (tokens += 1));
      if (isDecoding) await running.waitUntil('it decodes', () => tokens >= 5);
      else await running.sleep(3);
      assert.equal(isDecoding || tokens === 0, true, 'the prompt is still read');
      await standStill(running, ['main'], stopMs);
      const goesOnMs = running.nowMs;
      assertSameAnswer(await answer, expected.get(request) ?? assert.fail());
      assert.ok(running.nowMs - goesOnMs <= SERVES_AGAIN_MS, `it took ${running.nowMs - goesOnMs} ms from there`);
      await answersIn(running, SERVES_AGAIN_MS);
      const lost = running.log.matching('worker lost');
      if (stopMs < PEERS_GIVE_UP_MS || experts === 'local')
        assert.deepEqual(lost, [], 'main has lost a healthy worker');
      assert.deepEqual(
        lost.filter((line) => /no answer|has not answered|main-worker/.test(line)),
        [],
      );
    });
  }

  it('main, for 40 s while workers fetch their experts from it, serves them afterwards and soon has all', async () => {
    const parent = mkdtempSync(join(tmpdir(), 'odmoe-standstill-'));
    try {
      const running = await VirtualCluster.start({ workers: 0, main: { network: NETWORK } });
      cluster = running;
      const joined = ['a', 'b'].map((id) =>
        running.addWorker(id, { network: NETWORK, packDirectory: join(parent, id) }),
      );
      await running.sleep(20);
      await standStill(running, ['main'], 40_000);
      const goesOnMs = running.nowMs;
      await Promise.all(joined);
      await running.waitForRoster(2, 0);
      assert.ok(running.nowMs - goesOnMs <= 2 * SERVES_AGAIN_MS, `it took ${running.nowMs - goesOnMs} ms`);
      await answersIn(running, SERVES_AGAIN_MS);
      await running.stop();
      cluster = null;
    } finally {
      rmSync(parent, { recursive: true, force: true });
    }
  });

  it('main, for 40 s while workers and a shadow join, has all of them soon and refuses none', async () => {
    const running = await VirtualCluster.start({ workers: 0, main: { network: NETWORK } });
    cluster = running;
    const joined = ['a', 'b'].map((id) => running.addWorker(id, { network: NETWORK }));
    joined.push(running.addShadow('shadow', { network: NETWORK, precision: 'int8' }));
    await running.sleep(1);
    await standStill(running, ['main'], 40_000);
    const goesOnMs = running.nowMs;
    await Promise.all(joined);
    await running.waitForRoster(2, 1);
    assert.ok(running.nowMs - goesOnMs <= SERVES_AGAIN_MS, `it took ${running.nowMs - goesOnMs} ms`);
    await answersIn(running, SERVES_AGAIN_MS);
  });

  for (const stopMs of STOPS_MS) {
    it(`everybody at once, for ${stopMs / 1000} s, goes on with the answer to the bit and loses nobody`, async () => {
      const running = await begin('both', { shadow: 'int8' });
      let tokens = 0;
      const answer = running.patiently(REQUEST, () => (tokens += 1));
      await running.waitUntil('it decodes', () => tokens >= 5);
      await standStill(running, ['main', 'shadow', 'worker-0', 'worker-1'], stopMs);
      const goesOnMs = running.nowMs;
      assertSameAnswer(await answer, expected.get(REQUEST) ?? assert.fail());
      assert.ok(running.nowMs - goesOnMs <= SERVES_AGAIN_MS);
      assert.deepEqual(running.log.matching('worker lost'), []);
    });

    for (const id of ['worker-0', 'shadow']) {
      it(`${id}, for ${stopMs / 1000} s, is back at once when it goes on, and the answer goes on without it`, async () => {
        const running = await begin('workers', { shadow: 'int8' });
        let tokens = 0;
        const answer = running.patiently(REQUEST, () => (tokens += 1));
        await running.waitUntil('it decodes', () => tokens >= 5);
        await standStill(running, [id], stopMs);
        assertSameAnswer(await answer, expected.get(REQUEST) ?? assert.fail());
        const goesOnMs = running.nowMs;
        await running.waitForRoster(2, 1);
        assert.ok(running.nowMs - goesOnMs <= SERVES_AGAIN_MS, `it came back after ${running.nowMs - goesOnMs} ms`);
        await answersIn(running, SERVES_AGAIN_MS);
      });
    }
  }
});
