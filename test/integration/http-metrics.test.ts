import assert from 'node:assert/strict';
import { checkConventions, parseMetrics, valueOf } from '../unit/prometheus-text.js';
import { HttpCluster } from './harness/http-cluster.js';
import { waitUntil } from './harness/wait-until.js';

const KEY = 'a-key-of-the-test-1';
const HEADERS = { 'x-api-key': KEY };

describe('GET /metrics', function () {
  this.timeout(60_000);
  let api: HttpCluster;

  before(async () => {
    api = await HttpCluster.start({ workers: 1, apiKeys: [KEY] });
  });

  after(() => api.stop());

  it('requires a key, as everything but /health does', async () => {
    assert.equal((await api.fetch('/metrics')).status, 401);
  });

  it('returns Prometheus text about the requests of HTTP clients', async () => {
    const body = { messages: [{ role: 'user', content: 'Once' }], max_tokens: 5 };
    const answer = await api.fetch('/v1/chat/completions', body, { headers: HEADERS });
    assert.equal(answer.status, 200);
    const { usage } = (await answer.json()) as { usage: { prompt_tokens: number; completion_tokens: number } };
    const scraped = await api.fetch('/metrics', undefined, { headers: HEADERS });
    assert.equal(scraped.status, 200);
    assert.match(scraped.headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
    const families = parseMetrics(await scraped.text());
    checkConventions(families);
    assert.equal(valueOf(families, 'odmoe_requests_total', { code: 'ok' }), 1);
    assert.equal(valueOf(families, 'odmoe_prompt_tokens_total'), usage.prompt_tokens);
    assert.equal(valueOf(families, 'odmoe_generated_tokens_total'), usage.completion_tokens);
    assert.equal(valueOf(families, 'odmoe_nodes', { role: 'worker' }), 1);
    const http = (route: string, code: string): number =>
      valueOf(families, 'odmoe_http_requests_total', { route, code });
    assert.equal(http('/v1/chat/completions', 'ok'), 1);
    assert.equal(http('/metrics', 'UNAUTHORIZED'), 1, 'the one without a key');
  });
});

describe('the log of HTTP requests', function () {
  this.timeout(60_000);
  const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
  const SPAN = '00f067aa0ba902b7';
  let api: HttpCluster;

  interface LogLine {
    level: string;
    fields: Record<string, unknown>;
  }

  /** The one log line of the request's end. It comes when the connection has reported the end. */
  async function endOf(request: string): Promise<LogLine> {
    const lines = (): string[] =>
      api.cluster.log.matching('HTTP request ended').filter((line) => line.includes(request));
    await waitUntil(`request ${request} is logged`, () => lines().length > 0);
    assert.equal(lines().length, 1);
    const [, level = '', fields = ''] = / main: (\w+) HTTP request ended (.*)$/.exec(lines()[0] ?? '') ?? [];
    return { level, fields: JSON.parse(fields) as Record<string, unknown> };
  }

  before(async () => {
    api = await HttpCluster.start({ workers: 1, apiKeys: [KEY] });
  });

  after(() => api.stop());

  const chat = (id: string, body: object, headers: Record<string, string> = {}): Promise<Response> =>
    api.fetch('/v1/chat/completions', body, { headers: { ...HEADERS, 'x-request-id': id, ...headers } });

  it('has one line for an answer, with its trace, its tokens and no text', async () => {
    const messages = [{ role: 'user', content: 'A secret about Rumpelstiltskin' }];
    const traceparent = `00-${TRACE}-${SPAN}-01`;
    const answer = await chat('request-1', { messages, max_tokens: 5 }, { traceparent });
    const { usage } = (await answer.json()) as { usage: { prompt_tokens: number; completion_tokens: number } };
    const { level, fields } = await endOf('request-1');
    const { duration_ms: duration, ...rest } = fields;
    assert.equal(level, 'info');
    assert.ok(typeof duration === 'number' && duration >= 0);
    assert.deepEqual(rest, {
      request: 'request-1',
      trace_id: TRACE,
      span_id: SPAN,
      method: 'POST',
      route: '/v1/chat/completions',
      status: 200,
      code: 'ok',
      prompt_tokens: usage.prompt_tokens,
      tokens: usage.completion_tokens,
    });
    assert.deepEqual(api.cluster.log.matching('Rumpelstiltskin'), []);
    assert.deepEqual(api.cluster.log.matching(KEY), []);
  });

  it('counts the tokens of all answers of a request, streamed ones too', async () => {
    const messages = [{ role: 'user', content: 'Once' }];
    const answer = await chat('request-2', { messages, max_tokens: 4, n: 2, stream: true, ignore_eos: true });
    assert.equal(answer.status, 200);
    await answer.text();
    const { fields } = await endOf('request-2');
    assert.deepEqual([fields['tokens'], fields['code'], fields['trace_id']], [8, 'ok', undefined]);
  });

  it('counts every prompt of a request once, however many answers it has', async () => {
    const body = { prompt: ['Once upon', 'The fox and the dog'], n: 2, max_tokens: 2 };
    const answer = await api.fetch('/v1/completions', body, { headers: { ...HEADERS, 'x-request-id': 'request-7' } });
    const { usage } = (await answer.json()) as { usage: { prompt_tokens: number; completion_tokens: number } };
    const { fields } = await endOf('request-7');
    assert.deepEqual([fields['prompt_tokens'], fields['tokens']], [usage.prompt_tokens, usage.completion_tokens]);
  });

  it('names the code of a refused request, and never a malformed trace', async () => {
    const answer = await chat('request-3', { messages: 7 }, { traceparent: `00-${TRACE}-${SPAN}` });
    assert.equal(answer.status, 400);
    const { fields } = await endOf('request-3');
    assert.deepEqual([fields['status'], fields['code'], fields['trace_id']], [400, 'REQUEST_INVALID', undefined]);
    const refused = await chat('request-4', {}, { 'x-api-key': 'another' });
    assert.equal(refused.status, 401);
    const end = await endOf('request-4');
    assert.deepEqual([end.fields['status'], end.fields['code']], [401, 'UNAUTHORIZED']);
  });

  it('never quotes unknown paths', async () => {
    await api.fetch('/v1/a-secret', undefined, { headers: { ...HEADERS, 'x-request-id': 'request-5' } });
    const { fields } = await endOf('request-5');
    assert.deepEqual([fields['route'], fields['code']], ['none', 'ROUTE_UNKNOWN']);
  });

  it('records that a client left', async () => {
    const gone = new AbortController();
    const messages = [{ role: 'user', content: 'Once' }];
    const answer = await api.fetch(
      '/v1/chat/completions',
      { messages, stream: true, max_tokens: 200, ignore_eos: true },
      { headers: { ...HEADERS, 'x-request-id': 'request-6' }, signal: gone.signal },
    );
    await answer.body?.getReader().read();
    gone.abort();
    const { fields } = await endOf('request-6');
    assert.equal(fields['code'], 'CANCELLED');
  });

  it('omits regular requests of machines', async () => {
    for (const path of ['/health', '/metrics']) {
      await api.fetch(path, undefined, { headers: { ...HEADERS, 'x-request-id': `poll-${path.slice(1)}` } });
      assert.equal((await endOf(`poll-${path.slice(1)}`)).level, 'debug');
    }
  });
});
