import assert from 'node:assert/strict';
import type { ClusterEvent } from '../../shared/wire/cluster-events.js';
import { HttpCluster } from './harness/http-cluster.js';

const KEY = 'a-key-of-the-test-1';
const COOKIE = /^odmoe_session=([\w-]{36}); Max-Age=604800; Path=\/; HttpOnly; SameSite=Strict$/;
const REQUEST = { prompt: [1, 2, 3], max_tokens: 2 };

/** Reads server-sent events until one is as wanted. */
async function eventsUntil(answer: Response, isLast: (event: ClusterEvent) => boolean): Promise<ClusterEvent[]> {
  const events: ClusterEvent[] = [];
  let text = '';
  const decoder = new TextDecoder();
  for await (const bytes of answer.body ?? assert.fail('no body')) {
    text += decoder.decode(bytes as Uint8Array, { stream: true });
    const blocks = text.split('\n\n');
    text = blocks.pop() ?? '';
    for (const block of blocks) {
      const [, name = '', data = ''] = /^event: (\w+)\ndata: (.*)$/.exec(block) ?? [];
      if (name === '') continue;
      const event = JSON.parse(data) as ClusterEvent;
      assert.equal(event.type, name);
      events.push(event);
      if (isLast(event)) return events;
    }
  }
  return assert.fail(`the stream has ended after ${events.map(({ type }) => type).join(' ')}`);
}

describe('the web page', function () {
  this.timeout(60_000);
  let api: HttpCluster;

  before(async () => {
    api = await HttpCluster.start({ model: 'tiny', workers: 1, apiKeys: [KEY] });
  });

  after(() => api.stop());

  const logIn = (key: unknown, headers: Record<string, string> = {}): Promise<Response> =>
    api.fetch('/cluster/session', { key }, { headers });

  const cookieOf = async (): Promise<string> => {
    const answer = await logIn(KEY, { origin: api.url });
    assert.equal(answer.status, 204);
    const set = answer.headers.get('set-cookie') ?? '';
    return `odmoe_session=${COOKIE.exec(set)?.[1] ?? assert.fail(set)}`;
  };

  it('is served to a browser at /, and to no other client; its policy names no other origin', async () => {
    const headers = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
    const page = await api.fetch('/', undefined, { headers });
    assert.equal(page.status, 200);
    assert.equal(page.headers.get('content-type'), 'text/html; charset=utf-8');
    const policy = page.headers.get('content-security-policy') ?? '';
    assert.match(policy, /^default-src 'none'; script-src 'self'; .*frame-ancestors 'none'$/);
    assert.doesNotMatch(policy, /https?:|unsafe|\*/);
    assert.equal(page.headers.get('x-content-type-options'), 'nosniff');
    assert.equal(page.headers.get('referrer-policy'), 'no-referrer');
    const etag = page.headers.get('etag') ?? '';
    const again = await api.fetch('/', undefined, { headers: { ...headers, 'if-none-match': etag } });
    assert.equal(again.status, 304);
    const text = await page.text();
    const names = [...text.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, name = '']) => name);
    assert.ok(names.length > 0);
    for (const name of names) {
      assert.match(name, /^\/assets\/[\w.-]+$/);
      assert.equal((await api.fetch(name, undefined, { method: 'HEAD' })).status, 200, name);
    }
    const words = await (await api.fetch('/')).text();
    assert.match(words, /^This is the HTTP API[^]*\/v1\/chat\/completions/);
    assert.equal((await api.fetch('/assets/..%2fpackage.json')).status, 404);
  });

  it('has a manifest that a browser may fetch before anybody logged in, with icons that are there', async () => {
    const answer = await api.fetch('/assets/manifest.webmanifest', undefined, { headers: { origin: api.url } });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('content-type'), 'application/manifest+json');
    const policy = answer.headers.get('content-security-policy') ?? '';
    assert.match(policy, /; manifest-src 'self';/);
    const manifest = (await answer.json()) as {
      start_url: string;
      icons: { src: string; type: string; sizes: string }[];
    };
    assert.equal((await api.fetch(manifest.start_url)).status, 200);
    assert.ok(manifest.icons.length >= 3);
    for (const { src, type, sizes } of manifest.icons) {
      const icon = await api.fetch(src);
      assert.deepEqual([icon.status, icon.headers.get('content-type')], [200, type], src);
      if (type !== 'image/png') continue;
      const bytes = Buffer.from(await icon.arrayBuffer());
      assert.equal(`${bytes.readUInt32BE(16)}x${bytes.readUInt32BE(20)}`, sizes, src);
    }
  });

  it('logs in once by a key; a wrong one opens nothing', async () => {
    assert.equal((await api.fetch('/cluster/events')).status, 401);
    assert.equal((await logIn('another-key')).status, 401);
    for (const body of [7, { no: 'key' }]) assert.equal((await logIn(body)).status, 400);
    assert.equal((await logIn(KEY, { origin: 'http://evil.example' })).status, 403);
    const cookie = await cookieOf();
    assert.equal((await api.fetch('/v1/models', undefined, { headers: { cookie } })).status, 200);
    const strange = `${cookie.slice(0, -1)}${cookie.endsWith('0') ? '1' : '0'}`;
    assert.equal((await api.fetch('/v1/models', undefined, { headers: { cookie: strange } })).status, 401);
  });

  it('changes state by its cookie only from its own origin', async () => {
    const cookie = await cookieOf();
    const ask = async (headers: Record<string, string>): Promise<number> => {
      const answer = await api.fetch('/v1/completions', REQUEST, { headers: { cookie, ...headers } });
      await answer.arrayBuffer();
      return answer.status;
    };
    assert.equal(await ask({ origin: api.url }), 200);
    assert.equal(await ask({}), 401, 'nobody says where it comes from');
    assert.equal(await ask({ origin: 'http://127.0.0.1:3000' }), 403, 'another port of the same host');
    const other = { cookie, origin: 'http://127.0.0.1:3000' };
    assert.equal((await api.fetch('/v1/models', undefined, { headers: other })).status, 401);
  });

  it('is closed by the end of its session', async () => {
    const cookie = await cookieOf();
    const ended = await api.fetch('/cluster/session', undefined, { method: 'DELETE', headers: { cookie } });
    assert.equal(ended.status, 204);
    assert.match(ended.headers.get('set-cookie') ?? '', /^odmoe_session=; Max-Age=0;/);
    assert.equal((await api.fetch('/v1/models', undefined, { headers: { cookie } })).status, 401);
  });

  it('gets the allowed values for passes, where it requests another one', async () => {
    for (const query of ['passes=maybe', 'passes=', 'passes=on&passes=off']) {
      const answer = await api.fetch(`/cluster/events?${query}`, undefined, { headers: { 'x-api-key': KEY } });
      assert.equal(answer.status, 400, query);
      const { error } = (await answer.json()) as { error: { message: string; param: string; code: string } };
      assert.deepEqual([error.param, error.code], ['passes', 'request_invalid']);
      assert.match(error.message, /on or off/);
    }
  });

  it('gets the cluster, figures and later events, until it leaves', async () => {
    const stop = new AbortController();
    const headers = { 'x-api-key': KEY };
    const answer = await api.fetch('/cluster/events', undefined, { headers, signal: stop.signal });
    assert.equal(answer.headers.get('content-type'), 'text/event-stream; charset=utf-8');
    let figures = 0;
    const events = await eventsUntil(answer, ({ type }) => type === 'figures' && (figures += 1) === 2);
    stop.abort();
    const [first] = events;
    assert.ok(first?.type === 'cluster');
    const { nodes, model, expertLayers } = first.cluster;
    assert.equal(model.name, 'mixtral');
    assert.ok(expertLayers > 0);
    assert.deepEqual(
      nodes.map(({ role, state }) => `${role} ${state}`),
      ['main up', 'worker up'],
    );
    for (const type of ['recall', 'heat'])
      assert.ok(
        events.some((event) => event.type === type),
        type,
      );
  });
});
