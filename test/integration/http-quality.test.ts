/** HTTP clients of a main whose workers compute experts with slices. */
import assert from 'node:assert/strict';
import type { Quality } from '../../shared/settings/quality.js';
import { HttpCluster } from './harness/http-cluster.js';
import { slicedPackOf } from './harness/test-models.js';

const LOW: Quality = { kind: 'low', split: 'sliced84' };
const LOW_TEXT = 'sliced(8,4,low)';
const MESSAGES = [{ role: 'user', content: 'Tell me a story about a fox.' }];

/** A body for each path that gives answers. */
const REQUESTS: readonly (readonly [path: string, body: Record<string, unknown>])[] = [
  ['/v1/chat/completions', { messages: MESSAGES, max_tokens: 4 }],
  ['/v1/completions', { prompt: 'Once', max_tokens: 4 }],
  ['/v1/responses', { input: 'Hello', max_output_tokens: 4 }],
  ['/v1/messages', { messages: MESSAGES, max_tokens: 4 }],
  ['/api/chat', { messages: MESSAGES, options: { num_predict: 4 }, stream: false }],
  ['/api/generate', { prompt: 'Once', options: { num_predict: 4 }, stream: false }],
];

describe('HTTP clients of a main with a sliced quality', function () {
  this.timeout(120_000);
  let api: HttpCluster;

  before(async () => {
    const packDirectory = await slicedPackOf('demo', []);
    const main = { main: { quality: LOW } };
    api = await HttpCluster.start({ workers: 1, packDirectory, main, worker: () => main });
  });

  after(() => api.stop());

  for (const [path, body] of REQUESTS) {
    it(`${path} names the arithmetic in its answer, and refuses a request for exact answers with 400`, async () => {
      const model = 'demo';
      const answer = await api.fetch(path, { model, ...body });
      assert.equal(answer.status, 200, await answer.clone().text());
      assert.equal(((await answer.json()) as Record<string, unknown>)['arithmetic'], LOW_TEXT);

      const wanted = await api.fetch(path, { model, ...body, arithmetic: LOW_TEXT });
      assert.equal(wanted.status, 200);

      for (const stream of [false, true]) {
        const refused = await api.fetch(path, { model, ...body, stream, arithmetic: 'exact' });
        assert.equal(refused.status, 400);
        assert.match(await refused.text(), /wants \\"exact\\".*sliced\(8,4,low\)/);
      }
    });
  }

  it('is named where the model is listed', async () => {
    const { data } = (await (await api.fetch('/v1/models')).json()) as { data: object[] };
    assert.equal((data[0] as Record<string, unknown>)['arithmetic'], LOW_TEXT);
  });

  it('names the slices and the quality in the fingerprint, and the arithmetic in each chunk', async () => {
    const answer = await api.fetch('/v1/chat/completions', {
      model: 'demo',
      messages: MESSAGES,
      max_tokens: 4,
      stream: true,
    });
    const chunks = (await answer.text())
      .split('\n')
      .filter((line) => line.startsWith('data: {'))
      .map((line) => JSON.parse(line.slice('data: '.length)) as Record<string, unknown>);
    assert.ok(chunks.length > 1);
    for (const chunk of chunks) {
      assert.equal(chunk['arithmetic'], LOW_TEXT);
      assert.match(String(chunk['system_fingerprint']), /^odmoe-[\d.]+-[\da-f]{12}-[\da-f]{12}-sliced\(8,4,low\)$/);
    }
  });
});
