import assert from 'node:assert/strict';
import type { Finished } from '../../shared/wire/messages.js';
import type { CollectedAnswer } from '../integration/harness/answers.js';
import { requestFor } from '../integration/harness/answers.js';
import { checkConventions, type MetricFamily, parseMetrics, valueOf } from '../unit/prometheus-text.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const WORKERS = 3;

describe('the metrics of a simulated cluster', () => {
  let cluster: VirtualCluster;
  let families: Map<string, MetricFamily>;

  const scrape = async (): Promise<void> => {
    families = parseMetrics(await cluster.passing(cluster.node('main').metrics()));
    checkConventions(families);
  };
  const value = (name: string, labels?: Record<string, string>): number => valueOf(families, name, labels);
  const sum = (answers: readonly CollectedAnswer[], of: (finished: Finished) => number): number =>
    answers.reduce((total, { finished }) => total + of(finished), 0);
  const near = (actual: number, expected: number, what: string): void =>
    assert.ok(Math.abs(actual - expected) < 1e-9 * Math.max(1, expected), `${what}: ${actual} for ${expected}`);

  beforeEach(async () => {
    const main = { main: { maxActiveSequences: 2, maxQueuedRequests: 2 }, drafting: { rows: 3 } };
    cluster = await VirtualCluster.start({ workers: WORKERS, shadow: 'int8', main });
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  it('are the exact sums of the totals and times in finished answers', async () => {
    const prompts = [[1, 2, 3], [4, 5], [6], [7, 8, 9, 10]];
    const answers = await Promise.all(
      prompts.map((prompt) => cluster.ask(requestFor(prompt, { maxTokens: 6 + prompt.length }))),
    );
    await scrape();
    assert.equal(value('odmoe_requests_total', { code: 'ok' }), answers.length);
    assert.equal(value('odmoe_prompt_tokens_total'), prompts.flat().length);
    assert.equal(value('odmoe_generated_tokens_total'), answers.flatMap(({ tokens }) => tokens).length);
    const [inTime, late, missed, none] = ['in_time', 'late', 'missed', 'none'].map((prediction) =>
      value('odmoe_expert_activations_total', { prediction }),
    ) as [number, number, number, number];
    const correct = sum(answers, ({ sep }) => sep?.predictedCorrectly ?? 0);
    assert.ok(correct > 0);
    assert.equal(inTime + late, correct);
    assert.equal(
      inTime + late + missed,
      sum(answers, ({ sep }) => sep?.activated ?? 0),
    );
    assert.equal(none, 0);
    assert.equal(
      value('odmoe_expert_reloads_total'),
      sum(answers, ({ reloads }) => reloads),
    );
    assert.ok(sum(answers, ({ drafts }) => drafts?.proposed ?? 0) > 0);
    assert.equal(
      value('odmoe_draft_tokens_proposed_total'),
      sum(answers, ({ drafts }) => drafts?.proposed ?? 0),
    );
    assert.equal(
      value('odmoe_draft_tokens_accepted_total'),
      sum(answers, ({ drafts }) => drafts?.accepted ?? 0),
    );
    const seconds = (of: (timing: NonNullable<Finished['timing']>) => number): number =>
      sum(answers, ({ timing }) => (timing === null ? 0 : of(timing))) / 1000;
    near(
      value('odmoe_request_queue_seconds_sum'),
      seconds(({ queuedMs }) => queuedMs),
      'queue',
    );
    assert.ok(value('odmoe_request_queue_seconds_sum') > 0, 'two had to wait');
    near(
      value('odmoe_time_to_first_token_seconds_sum'),
      seconds(({ ttftMs }) => ttftMs),
      'first token',
    );
    near(
      value('odmoe_time_per_output_token_seconds_sum'),
      seconds(({ tpotMs }) => tpotMs),
      'later tokens',
    );
    near(
      value('odmoe_expert_stall_seconds_total'),
      seconds(({ ioStallMs }) => ioStallMs),
      'stalls',
    );
    for (const bound of ['0.05', '0.1', '0.25']) {
      const within = answers.filter(({ finished }) => (finished.timing?.ttftMs ?? 0) <= Number(bound) * 1000).length;
      assert.equal(value('odmoe_time_to_first_token_seconds_bucket', { le: bound }), within);
    }
  });

  it('name the codes of failed requests', async () => {
    await assert.rejects(cluster.ask(requestFor([99_999])), { code: 'REQUEST_INVALID' });
    const gone = new AbortController();
    const left = cluster.ask(requestFor([1, 2, 3], { maxTokens: 40 }), gone.signal, (count) => {
      if (count === 5) gone.abort();
    });
    await assert.rejects(left, { code: 'CANCELLED' });
    const many = Array.from({ length: 5 }, (_, index) => cluster.ask(requestFor([1, index], { maxTokens: 4 })));
    await Promise.allSettled(many);
    await cluster.sleep(1000);
    await scrape();
    const codes = Object.fromEntries(
      (families.get('odmoe_requests_total')?.samples ?? []).map(({ labels, value: count }) => [
        labels['code'] ?? '',
        count,
      ]),
    );
    assert.deepEqual(codes, { ok: 4, REQUEST_INVALID: 1, CANCELLED: 1, QUEUE_FULL: 1 });
    assert.equal(value('odmoe_request_duration_seconds_count', { code: 'QUEUE_FULL' }), 1);
    assert.deepEqual([value('odmoe_requests_active'), value('odmoe_requests_queued')], [0, 0]);
  });

  it('show decode waits, and the bytes of each link', async () => {
    await cluster.ask(requestFor([1, 2, 3], { maxTokens: 12 }));
    await scrape();
    const { layerWaits, workerWaits, links, placement } = await cluster.status();
    assert.deepEqual(
      layerWaits.map(({ layer }) => layer),
      Array.from({ length: placement?.layers ?? 0 }, (_, layer) => layer),
    );
    for (const { waitMs, stallMs } of layerWaits) assert.ok(waitMs > 0 && stallMs <= waitMs);
    near(
      value('odmoe_pass_expert_wait_seconds'),
      layerWaits.reduce((all, { waitMs }) => all + waitMs, 0) / 1000,
      'wait',
    );
    assert.equal(workerWaits.length, WORKERS);
    for (const { waitMs, stallMs, executeMs, otherMs } of workerWaits) {
      assert.ok(executeMs > 0 && otherMs > 0 && stallMs >= 0 && waitMs >= otherMs);
    }
    assert.deepEqual(links.map(({ peer }) => peer).sort(), ['shadow', 'worker-0', 'worker-1', 'worker-2']);
    for (const { peer: node } of links) {
      assert.ok(value('odmoe_link_sent_bytes_total', { node }) > 0);
      assert.ok(value('odmoe_link_received_bytes_total', { node }) > 0);
    }
  });

  it('show the uses of memory', async () => {
    await scrape();
    for (const { identity, deviceMemoryUsedBytes: used } of (await cluster.status()).nodes) {
      const of = (kind: string): number => value('odmoe_device_memory_bytes', { node: identity.id, kind });
      const own = identity.role === 'ROLE_WORKER' ? of('slots') : of('weights');
      assert.ok(own > 0 && own <= used, `${identity.id}: ${own} of ${used}`);
      if (identity.role !== 'ROLE_WORKER') {
        const kinds = ['weights', 'key_value_cache', 'prefixes', 'scratch', 'context'];
        assert.equal(
          kinds.reduce((sum, kind) => sum + of(kind), 0),
          used,
        );
      }
    }
  });

  it('continue to count where a worker is killed and comes back', async () => {
    await cluster.ask(requestFor([1, 2, 3], { maxTokens: 12 }));
    await scrape();
    const of = (name: string): number => value(name, { node: 'worker-1' });
    const before = [of('odmoe_expert_loads_total'), of('odmoe_link_sent_bytes_total')];
    assert.ok((before[0] ?? 0) > 0);
    cluster.node('worker-1').kill();
    await cluster.waitForRoster(WORKERS - 1, 1);
    await scrape();
    assert.equal(families.get('odmoe_expert_loads_total')?.samples.length, WORKERS - 1);
    await cluster.startAgain('worker-1');
    await cluster.waitForRoster(WORKERS, 1);
    await cluster.ask(requestFor([4, 5, 6], { maxTokens: 12 }));
    await scrape();
    assert.ok(of('odmoe_expert_loads_total') > (before[0] ?? 0));
    assert.ok(of('odmoe_link_sent_bytes_total') > (before[1] ?? 0));
    assert.equal(value('odmoe_nodes', { role: 'worker' }), WORKERS);
  });
});
