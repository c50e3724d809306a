import assert from 'node:assert/strict';
import { assertSameAnswer, collect, requestFor } from './harness/answers.js';
import { TestCluster, stopCluster } from './harness/test-cluster.js';
import { openReference, type TestModel } from './harness/test-models.js';

const PROMPTS = [
  [1, 17, 250, 3, 88, 9, 41],
  [1, 17, 250, 3, 88, 9, 41, 7, 130],
];

describe("a cluster whose main drafts with the model's own head answers as the single-process engine does, to the bit,", () => {
  let cluster: TestCluster | null = null;

  afterEach(async function () {
    await stopCluster(this, cluster);
    cluster = null;
  });

  for (const model of ['fixtures/glm45', 'fixtures/qwen35moe'] as const satisfies TestModel[]) {
    it(`one request after another, beginning with rows of the one before, and two at once: ${model}`, async () => {
      const reference = await openReference(model);
      try {
        const requests = PROMPTS.map((prompt) => requestFor(prompt, { logprobs: 5, maxTokens: 16 }));
        const expected = [];
        for (const request of requests) {
          expected.push(await collect(reference.generate(request, new AbortController().signal)));
        }
        cluster = await TestCluster.start({
          model,
          workers: 2,
          main: { drafting: { rows: 3, source: 'mtp' } },
        });
        for (const [index, request] of requests.entries()) {
          const answer = await cluster.ask(request);
          assertSameAnswer(answer, expected[index] ?? assert.fail());
          assert.ok((answer.finished.drafts?.proposed ?? 0) > 0);
        }
        const running = cluster;
        const both = await Promise.all(requests.map((request) => running.ask(request)));
        for (const [index, answer] of both.entries()) assertSameAnswer(answer, expected[index] ?? assert.fail());
        assert.deepEqual(cluster.log.matching("the model's own head has failed"), []);
      } finally {
        reference.dispose();
      }
    });
  }

  it('without drafts of a head where the pack has none, and says so', async () => {
    cluster = await TestCluster.start({ workers: 1, main: { drafting: { rows: 3, source: 'mtp' } } });
    const { finished } = await cluster.ask(requestFor(PROMPTS[0] ?? [], { maxTokens: 4 }));
    assert.ok(finished.drafts !== null, 'lookup drafts');
    assert.equal(cluster.log.matching('no drafts: the pack has no head').length, 1);
  });
});
