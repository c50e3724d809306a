import assert from 'node:assert/strict';
import { answeringClusters } from '../../integration/harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from '../../integration/harness/answers.js';

const OWN = 'main-worker';
/** Long enough that an answer is under way for some time after a client has seen its first tokens. */
const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 80, logprobs: 5 });

describe('a main process with its own experts', () => {
  const clusters = answeringClusters('tiny', REQUEST);

  it('answers without any other daemon (main.experts: local)', async () => {
    const running = await clusters.start('tiny', 0, false, ['--experts', 'local']);
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    const { nodes } = await running.status();
    assert.deepEqual(
      nodes.map(({ identity, executions }) => [identity.id, executions > 0]),
      [
        ['main', false],
        [OWN, true],
      ],
    );
  });

  it('continues alone where its worker is killed (SIGKILL) in an answer (main.experts: both)', async () => {
    const running = await clusters.start('tiny', 1, false, ['--experts', 'both']);
    const answer = await running.ask(REQUEST, (count) => {
      if (count === 10) running.daemon('worker-0').signal('SIGKILL');
    });
    assertSameAnswer(answer, clusters.expected);
    await running.waitForRoster(1, 0);
    const ids = answer.finished.nodes.map(({ identity }) => identity.id);
    assert.ok(ids.includes(OWN) && !ids.includes('worker-0'), `at the end there were ${ids.join(', ')}`);
  });
});
