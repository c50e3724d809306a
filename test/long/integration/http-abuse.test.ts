import assert from 'node:assert/strict';
import { HttpCluster } from '../../integration/harness/http-cluster.js';
import { RawClient } from '../../integration/harness/test-http-api.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

const REQUESTS = 1000;
const QUESTION = { prompt: 'Once upon a time', max_tokens: 12 };
const LONG = { prompt: 'Once upon a time', max_tokens: 150, ignore_eos: true };

interface Completion {
  choices: { text: string }[];
}

describe('a cluster with hostile HTTP clients,', function () {
  this.timeout(120_000);
  let http: HttpCluster;
  let expected: string;

  before(async () => {
    http = await HttpCluster.start({
      shadow: 'int8',
      main: { main: { maxActiveSequences: 2, maxQueuedRequests: 20 } },
    });
    expected = await textOf(await http.fetch('/v1/completions', QUESTION));
  });

  after(() => http.stop());

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') http.cluster.log.print();
    await waitUntil('nobody holds anything', () => http.cluster.openCount() === 0);
    assert.equal(await textOf(await http.fetch('/v1/completions', QUESTION)), expected);
  });

  async function textOf(answer: Response): Promise<string> {
    const { choices } = (await answer.json()) as Completion;
    return choices[0]?.text ?? assert.fail('an answer has a choice');
  }

  async function connect(body: object): Promise<RawClient> {
    const client = await RawClient.connect(http.url.slice('http://'.length));
    client.request('/v1/completions', JSON.stringify(body));
    return client;
  }

  const counts = async (): Promise<{ active: number; queued: number }> => {
    const { activeSequences: active, queuedRequests: queued } = await http.cluster.status();
    return { active, queued };
  };

  it(`${REQUESTS} at once: each is answered, as many as the queue holds with what one gets alone, the others with 429`, async () => {
    const answers = await Promise.all(
      Array.from({ length: REQUESTS }, async () => {
        const answer = await http.fetch('/v1/completions', QUESTION);
        if (answer.status === 200) return textOf(answer);
        assert.equal(answer.status, 429);
        assert.match(answer.headers.get('retry-after') ?? '', /^\d+$/);
        return answer.text().then(() => null);
      }),
    );
    const served = answers.filter((text) => text !== null);
    assert.ok(served.length >= 20 && served.length < REQUESTS, `${served.length} were served`);
    assert.deepEqual(new Set(served), new Set([expected]));
  });

  for (const stream of [true, false]) {
    const how = stream ? 'streamed' : 'at once';

    it(`killed in the middle, ${how}: another answer is unharmed`, async () => {
      const client = await connect({ ...LONG, stream });
      await waitUntil(
        'it runs',
        async () => (await counts()).active === 1 && (!stream || client.received.length > 500),
      );
      const other = http.fetch('/v1/completions', QUESTION);
      client.kill();
      assert.equal(await textOf(await other), expected);
    });

    it(`killed while they wait for their turn, ${how}: those that run are unharmed`, async () => {
      const running = await Promise.all([connect({ ...LONG, stream: true }), connect({ ...LONG, stream: true })]);
      await waitUntil('two run', async () => (await counts()).active === 2);
      const waiting = await Promise.all(Array.from({ length: 5 }, () => connect({ ...LONG, stream })));
      await waitUntil('five wait', async () => (await counts()).queued === 5);
      for (const client of waiting) client.kill();
      await waitUntil('none waits', async () => (await counts()).queued === 0);
      await waitUntil('two are answered', () => running.every(({ received }) => received.includes('[DONE]')));
      for (const client of running) client.kill();
    });
  }

  it('killed right after their requests: no resources remain', async () => {
    const clients = await Promise.all(Array.from({ length: 20 }, () => connect(LONG)));
    for (const client of clients) client.kill();
  });

  it('that stop reading an answer of many log-probabilities in mid-stream: others are answered meanwhile', async () => {
    const client = await connect({ ...LONG, stream: true, logprobs: 20 });
    await waitUntil('it has begun', () => client.received.length > 0);
    client.socket.pause();
    assert.equal(await textOf(await http.fetch('/v1/completions', QUESTION)), expected);
    client.kill();
  });
});
