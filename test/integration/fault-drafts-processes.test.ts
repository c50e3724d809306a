import assert from 'node:assert/strict';
import { answeringClusters } from './harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from './harness/answers.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], {
  ...{ maxTokens: 160, logprobs: 300 },
  sampling: { temperature: 1, topK: 0, topP: 0.95, minP: 0, repetitionPenalty: 1.1, seed: 12 },
});

const MODES: [string, string[]][] = [
  ['drafts of 4 rows, optimistic, experts spread over all', ['--draft-rows', '4', '--optimistic', '--spread', 'all']],
  ['drafts of 3 rows that are waited for', ['--draft-rows', '3']],
];

describe('daemons that fail while drafts are verified', () => {
  const clusters = answeringClusters('tiny', REQUEST);

  for (const [what, flags] of MODES) {
    it(`workers killed one after another, with ${what}`, async () => {
      const running = await clusters.start('tiny', 4, true, flags);
      const victims = ['worker-0', 'worker-2', 'worker-3'];
      const answer = await running.ask(REQUEST, (count) => {
        const victim = count % 20 === 0 ? victims[count / 20 - 1] : undefined;
        if (victim !== undefined) running.daemon(victim).signal('SIGKILL');
      });
      assertSameAnswer(answer, clusters.expected);
      assert.ok((answer.finished.drafts?.accepted ?? 0) > 0, 'drafts were used');
      await running.waitForRoster(1, 1);
    });

    it(`shadow killed, a worker joined, another shadow started, with ${what}`, async () => {
      const running = await clusters.start('tiny', 2, true, flags);
      let changed: Promise<unknown> = Promise.resolve();
      const answer = await running.ask(REQUEST, async (count) => {
        if (count === 20) changed = running.startWorker('worker-2');
        if (count !== 60) return;
        await running.daemon('shadow').end('SIGKILL');
        changed = Promise.all([changed, running.startShadow('shadow')]);
      });
      await changed;
      assertSameAnswer(answer, clusters.expected);
      await running.waitForRoster(3, 1);
      assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    });

    it(`shadow stopped (SIGSTOP), with ${what}: the answer goes on`, async () => {
      const running = await clusters.start('tiny', 2, true, flags);
      const answer = await running.ask(REQUEST, (count) => {
        if (count === 10) running.daemon('shadow').signal('SIGSTOP');
      });
      assertSameAnswer(answer, clusters.expected);
      running.daemon('shadow').signal('SIGCONT');
    });
  }
});
