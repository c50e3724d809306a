import assert from 'node:assert/strict';
import type { RpcServer } from '../../shared/transport/transport.js';
import type { AlignRows, BeginSequence } from '../../shared/wire/messages.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { joinScriptedShadow } from './scripted-shadow.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

const WORKERS = 2;
const LAYERS = 4;
const PROMPT = [1, 17, 250, 3, 88, 120, 9];
const REQUEST = requestFor(PROMPT, { maxTokens: 40, logprobs: 5 });

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

describe('a shadow that is lost in the middle of an answer', () => {
  let expected: CollectedAnswer;
  let cluster: VirtualCluster;
  const scripted: RpcServer[] = [];

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    for (const server of scripted.splice(0)) await server.stop();
  });

  it('is reported; a new one is aligned and predicts in the same answer', async () => {
    cluster = await VirtualCluster.start({ workers: WORKERS, shadow: 'fp16' });
    const answer = await cluster.ask(REQUEST, undefined, async (count) => {
      if (count === 10) cluster.node('shadow').kill();
      if (count === 18) await cluster.startAgain('shadow');
    });
    assertSameAnswer(answer, expected);
    const correct = answer.finished.sep?.correctByIteration ?? [];
    const without = correct.indexOf(0);
    assert.ok(without >= 8, `predicted before it was lost: ${correct.join()}`);
    assert.ok(sum(correct.slice(without)) > 0, `predicted after it was back: ${correct.join()}`);
  });

  it('leaves nothing to the next one, which gets all keys and values from position 0, without a gap', async () => {
    cluster = await VirtualCluster.start({ workers: WORKERS });
    const first: AlignRows[] = [];
    const second: AlignRows[] = [];
    const begins: BeginSequence[] = [];
    const gone = await joinScriptedShadow(cluster, WORKERS, { onRows: (rows) => void first.push(rows) }, 'first');
    let replaced: Promise<void> = Promise.resolve();
    const replace = async (): Promise<void> => {
      await cluster.passing(gone.stop());
      const script = {
        onBegin: (_stream: unknown, begin: BeginSequence) => void begins.push(begin),
        onRows: (rows: AlignRows) => void second.push(rows),
      };
      scripted.push(await joinScriptedShadow(cluster, WORKERS, script, 'second'));
    };
    const answer = await cluster.ask(REQUEST, undefined, async (count) => {
      if (count === 12) await (replaced = replace());
    });
    await replaced;
    assertSameAnswer(answer, expected);
    assert.ok(first.length > 0 && begins.length === 1, 'both took part');
    for (let layer = 0; layer < LAYERS; layer++) {
      let next = 0;
      for (const { position, rows } of second.filter((sent) => sent.layer === layer)) {
        assert.equal(position, next, `layer ${layer}`);
        next = position + rows;
      }
      assert.ok(next > PROMPT.length + 12, `layer ${layer} was sent up to ${next}`);
    }
  });
});
