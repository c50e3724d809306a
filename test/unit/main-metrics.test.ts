import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { MainMetrics } from '../../main-node/metrics/main-metrics.js';
import { ENDED_REQUEST, MAIN_STATUS, metricFigures } from './metric-figures.js';
import { checkConventions, parseMetrics, valueOf } from './prometheus-text.js';

async function scrape(metrics: MainMetrics, of = metricFigures()): Promise<ReturnType<typeof parseMetrics>> {
  return parseMetrics(await metrics.text(of));
}

describe("main's metrics", () => {
  it('have the names and the format that a scraper expects, from the first scrape on', async () => {
    const metrics = new MainMetrics();
    checkConventions(await scrape(metrics));
    metrics.requests.admitted(7, 100);
    metrics.requests.firstToken(1500);
    metrics.requests.token();
    metrics.requests.ended(ENDED_REQUEST);
    metrics.requests.ended({ ...ENDED_REQUEST, code: 'QUEUE_FULL', cost: null });
    const families = await scrape(metrics);
    checkConventions(families);
    assert.ok(families.size > 30);
    assert.match(metrics.contentType, /^text\/plain; version=0\.0\.4/);
  });

  it('pass promtool check metrics', async function () {
    if (spawnSync('promtool', ['--version']).error !== undefined) {
      console.log('      promtool is not installed (Debian: prometheus); the own check has run');
      this.skip();
    }
    const metrics = new MainMetrics();
    metrics.requests.ended(ENDED_REQUEST);
    const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
      input: await metrics.text(metricFigures()),
      encoding: 'utf8',
    });
    assert.equal(`${stdout}${stderr}`, '');
    assert.equal(status, 0);
  });

  it('count requests, their tokens, times, experts and drafts', async () => {
    const metrics = new MainMetrics();
    metrics.requests.admitted(7, 100);
    metrics.requests.firstToken(1500);
    for (let token = 0; token < 11; token++) metrics.requests.token();
    metrics.requests.ended(ENDED_REQUEST);
    metrics.requests.ended({ ...ENDED_REQUEST, code: 'CANCELLED', durationMs: 90 });
    const families = await scrape(metrics);
    const value = (name: string, labels?: Record<string, string>): number => valueOf(families, name, labels);
    assert.deepEqual(
      [value('odmoe_requests_total', { code: 'ok' }), value('odmoe_requests_total', { code: 'CANCELLED' })],
      [1, 1],
    );
    assert.deepEqual([value('odmoe_prompt_tokens_total'), value('odmoe_generated_tokens_total')], [7, 11]);
    assert.equal(value('odmoe_time_to_first_token_seconds_sum'), 1.5);
    assert.equal(value('odmoe_time_to_first_token_seconds_bucket', { le: '1' }), 0);
    assert.equal(value('odmoe_time_to_first_token_seconds_bucket', { le: '2.5' }), 1);
    assert.equal(value('odmoe_request_queue_seconds_sum'), 0.1);
    assert.equal(value('odmoe_request_duration_seconds_sum', { code: 'ok' }), 4);
    assert.equal(value('odmoe_request_duration_seconds_count', { code: 'CANCELLED' }), 1);
    assert.equal(value('odmoe_time_per_output_token_seconds_sum'), 0.25, 'of answers that came to their end');
    const predicted = ['in_time', 'late', 'missed', 'none'].map((prediction) =>
      value('odmoe_expert_activations_total', { prediction }),
    );
    assert.deepEqual(predicted, [10, 4, 2, 0]);
    assert.equal(value('odmoe_expert_reloads_total'), 6);
    assert.equal(value('odmoe_cached_prompt_tokens_total'), 8);
    assert.equal(value('odmoe_expert_stall_seconds_total'), 0.04);
    assert.deepEqual(
      [value('odmoe_draft_tokens_proposed_total'), value('odmoe_draft_tokens_accepted_total')],
      [16, 12],
    );
  });

  it('include the facts of status', async () => {
    const families = await scrape(new MainMetrics());
    const value = (name: string, labels?: Record<string, string>): number => valueOf(families, name, labels);
    const build = { version: '1.2.3', protocol: '9', model: 'storyteller', pack: 'abc', arithmetic: 'exact' };
    assert.deepEqual(families.get('odmoe_build_info')?.samples, [
      { name: 'odmoe_build_info', labels: build, value: 1 },
    ]);
    assert.deepEqual(
      ['main', 'shadow', 'worker'].map((role) => value('odmoe_nodes', { role })),
      [1, 1, 1],
    );
    assert.deepEqual([value('odmoe_requests_active'), value('odmoe_requests_queued')], [1, 2]);
    assert.equal(value('odmoe_pass_expert_wait_seconds'), 0.006);
    const ofMain = (kind: string): number => value('odmoe_device_memory_bytes', { node: 'main', kind });
    assert.deepEqual(
      ['context', 'weights', 'key_value_cache', 'prefixes', 'scratch'].map(ofMain),
      [100, 700, 120, 30, 50],
    );
    const rows = ['odmoe_kept_prefixes', 'odmoe_dropped_prefixes_total', 'odmoe_decision_bytes'];
    assert.deepEqual(
      rows.map((name) => value(name)),
      [3, 2, 7],
    );
    const escaped = String.raw`w\"1\\`;
    const ofWorker = (name: string, labels = {}): number => value(name, { node: escaped, ...labels });
    assert.equal(ofWorker('odmoe_device_memory_bytes', { kind: 'slots' }), 20);
    assert.equal(ofWorker('odmoe_device_memory_bytes', { kind: 'cache' }), 50);
    assert.equal(ofWorker('odmoe_expert_loads_total'), 30);
    assert.equal(ofWorker('odmoe_head_expert_loads_total'), 4);
    assert.equal(families.get('odmoe_expert_loads_total')?.samples.length, 1, 'of workers');
    assert.equal(value('odmoe_predicted_positions_total', { node: 'shadow' }), 40);
    assert.equal(ofWorker('odmoe_cache_uses_total', { held: 'part' }), 6);
    assert.equal(ofWorker('odmoe_worker_wait_seconds', { part: 'execute' }), 0.0015);
    assert.equal(ofWorker('odmoe_worker_hop_seconds', { stage: 'hand_off', quantile: '0.99' }), 0.001);
    assert.equal(ofWorker('odmoe_worker_last_ratio'), 0.25);
    assert.deepEqual([ofWorker('odmoe_link_sent_bytes_total'), ofWorker('odmoe_link_received_bytes_total')], [11, 22]);
    assert.equal(value('odmoe_node_uptime_seconds', { node: 'main' }), 2.5);
  });

  it('forget nodes that have left, and never restart a count', async () => {
    const metrics = new MainMetrics();
    await metrics.text(metricFigures());
    const families = await scrape(metrics, metricFigures([MAIN_STATUS]));
    const named = [...families.values()].flatMap(({ samples }) => samples.map(({ labels }) => labels['node']));
    assert.deepEqual([...new Set(named)].sort(), ['main', undefined]);
    assert.equal(valueOf(await scrape(metrics), 'odmoe_expert_loads_total'), 30);
  });

  it('have a bounded number of labels, and none of an expert or a text', async () => {
    const metrics = new MainMetrics();
    metrics.httpRequestEnded('/v1/models/:id', 'ok');
    const labels = [...(await scrape(metrics)).values()].flatMap(({ samples }) =>
      samples.flatMap((sample) => Object.keys(sample.labels)),
    );
    assert.deepEqual([...new Set(labels)].sort(), [
      'arithmetic',
      'code',
      'held',
      'kind',
      'le',
      'model',
      'node',
      'pack',
      'part',
      'prediction',
      'protocol',
      'quantile',
      'result',
      'role',
      'route',
      'source',
      'stage',
      'verdict',
      'version',
    ]);
  });
});
