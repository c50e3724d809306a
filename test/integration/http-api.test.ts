import assert from 'node:assert/strict';
import { HttpCluster } from './harness/http-cluster.js';

const KEY = 'a-key-of-the-test-1';

describe('the HTTP server', function () {
  this.timeout(60_000);
  let api: HttpCluster;

  before(async () => {
    api = await HttpCluster.start({ model: 'tiny', workers: 1, apiKeys: [KEY] });
  });

  after(() => api.stop());

  it('reports its health to everybody', async () => {
    const answer = await api.fetch('/health');
    assert.equal(answer.status, 200);
    assert.deepEqual(await answer.json(), { status: 'ok' });
    assert.match(answer.headers.get('x-request-id') ?? '', /^[\w.-]+$/);
  });

  it('appears in the status of the cluster', async () => {
    const { httpAddress } = await api.cluster.status();
    assert.equal(`http://${httpAddress}`, api.url);
  });

  it('refuses requests without a key', async () => {
    const answer = await api.fetch('/v1/nothing');
    assert.equal(answer.status, 401);
    const { error } = (await answer.json()) as { error: { code: string; type: string } };
    assert.equal(error.code, 'invalid_api_key');
    assert.equal(error.type, 'authentication_error');
    assert.equal(answer.headers.get('x-should-retry'), 'false');
  });

  for (const headers of [{ authorization: `Bearer ${KEY}` }, { 'x-api-key': KEY }]) {
    it(`lets in who has the key (${Object.keys(headers)[0]})`, async () => {
      const answer = await api.fetch('/v1/nothing', undefined, { headers });
      assert.equal(answer.status, 404);
      const { error } = (await answer.json()) as { error: { code: string } };
      assert.equal(error.code, 'route_unknown');
    });
  }

  it('names the allowed methods of a path', async () => {
    const answer = await api.fetch('/health', {}, { headers: { 'x-api-key': KEY } });
    assert.equal(answer.status, 405);
    assert.equal(answer.headers.get('allow'), 'GET, HEAD');
  });
});
