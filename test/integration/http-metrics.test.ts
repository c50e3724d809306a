import assert from 'node:assert/strict';
import { checkConventions, parseMetrics, valueOf } from '../unit/prometheus-text.js';
import { HttpCluster } from './harness/http-cluster.js';

const KEY = 'a-key-of-the-test-1';
const HEADERS = { 'x-api-key': KEY };

describe('GET /metrics', function () {
  this.timeout(60_000);
  let door: HttpCluster;

  before(async () => {
    door = await HttpCluster.start({ workers: 1, apiKeys: [KEY] });
  });

  after(() => door.stop());

  it('needs a key, as everything but /health', async () => {
    assert.equal((await door.fetch('/metrics')).status, 401);
  });

  it("is Prometheus' text of what HTTP clients have asked for", async () => {
    const body = { messages: [{ role: 'user', content: 'Once' }], max_tokens: 5 };
    const answer = await door.fetch('/v1/chat/completions', body, { headers: HEADERS });
    assert.equal(answer.status, 200);
    const { usage } = (await answer.json()) as { usage: { prompt_tokens: number; completion_tokens: number } };
    const scraped = await door.fetch('/metrics', undefined, { headers: HEADERS });
    assert.equal(scraped.status, 200);
    assert.match(scraped.headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
    const families = parseMetrics(await scraped.text());
    checkConventions(families);
    assert.equal(valueOf(families, 'odmoe_requests_total', { code: 'ok' }), 1);
    assert.equal(valueOf(families, 'odmoe_prompt_tokens_total'), usage.prompt_tokens);
    assert.equal(valueOf(families, 'odmoe_generated_tokens_total'), usage.completion_tokens);
    assert.equal(valueOf(families, 'odmoe_nodes', { role: 'worker' }), 1);
  });
});
