import assert from 'node:assert/strict';
import type { RpcServer } from '../../shared/transport/transport.js';
import type { AlignToken } from '../../shared/wire/messages.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';
import { joinScriptedShadow, type ShadowStream } from './scripted-shadow.js';
import { plainPrediction, restartAt } from '../unit/wire-messages.js';

const LAYERS = 4;
const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 20, logprobs: 300 });

describe('a misbehaving simulated shadow', () => {
  let expected: CollectedAnswer;
  let cluster: VirtualCluster;
  let rogue: RpcServer | null = null;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  beforeEach(async () => {
    cluster = await VirtualCluster.start({ workers: 3 });
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    await rogue?.stop();
  });

  async function startRogue(onToken: (stream: ShadowStream, token: AlignToken) => void): Promise<void> {
    rogue = await joinScriptedShadow(cluster, 3, { onToken });
  }

  const predict = (stream: ShadowStream, token: AlignToken, layer: number, experts: number[], ahead = 0): void => {
    const { epoch, sequence, position } = token;
    stream.send({
      kind: 'predict',
      predict: plainPrediction({ epoch, sequence, position: position + ahead, layer, experts }),
    });
  };

  it('repeats the same wrong experts: the answer is as without it', async () => {
    await startRogue((stream, token) => {
      for (let layer = 0; layer < LAYERS; layer++) predict(stream, token, layer, [6, 7], 1);
    });
    const answer = await cluster.ask(REQUEST);
    assertSameAnswer(answer, expected);
    assert.ok(answer.finished.sep !== null && answer.finished.sep.recall < 0.9);
  });

  it('predicts too late, too far ahead, and for unknown sequences: the answer is as without it', async () => {
    await startRogue((stream, token) => {
      predict(stream, token, 0, [1, 2], -1);
      predict(stream, token, 0, [1, 2], -5);
      predict(stream, token, 0, [1, 2], 1_000_000);
      predict(stream, { ...token, sequence: 12345 }, 0, [1, 2]);
      predict(stream, { ...token, epoch: 1 }, 1, [1, 2]);
      predict(stream, token, 2, [], 1);
      predict(stream, token, 3, [0, 1, 2, 3, 4, 5, 6, 7], 1);
    });
    assertSameAnswer(await cluster.ask(REQUEST), expected);
  });

  for (const [what, layer, experts] of [
    ['a layer', LAYERS, [1, 2]],
    ['an expert', 0, [1, 8]],
  ] as const) {
    it(`predicts ${what} that the model has not: it is dropped, and the answer is as without it`, async () => {
      await startRogue((stream, token) => {
        predict(stream, token, layer, [...experts], 1);
      });
      assertSameAnswer(await cluster.ask(REQUEST), expected);
      await cluster.waitUntil('the loss is logged', () => cluster.log.matching('which the model has not').length > 0);
    });
  }

  it('restarts at impossible positions: the answer is as without it', async () => {
    await startRogue((stream, { epoch, sequence, position }) => {
      for (const from of [position, 0, position + 1_000_000]) {
        stream.send({ kind: 'restart', restart: restartAt({ epoch, sequence, position: from }) });
      }
      stream.send({ kind: 'restart', restart: restartAt({ epoch: 1, sequence: 12345, position }) });
    });
    assertSameAnswer(await cluster.ask(REQUEST), expected);
  });

  it('drafts an unknown token: it is dropped, and the answer is as without it', async () => {
    await startRogue((stream, { epoch, sequence, position, branch }) => {
      const draft = { epoch, sequence, position: position + 1, tokenId: 300, branch, passPosition: position, runUs: 1 };
      stream.send({ kind: 'draft', draft });
    });
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    await cluster.waitUntil('the loss is logged', () => cluster.log.matching('drafted token 300').length > 0);
  });

  it('claims unrequested prefixes, of known and unknown sequences: the answer is as without it', async () => {
    await startRogue((stream, { sequence }) => {
      for (const of of [sequence, 12345]) {
        stream.send({ kind: 'prefixKept', prefixKept: { sequence: of, positions: 1_000_000 } });
      }
    });
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    assert.equal((await cluster.status()).nodes.filter(({ identity }) => identity.role === 'ROLE_SHADOW').length, 1);
  });
});
