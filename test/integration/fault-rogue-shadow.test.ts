import assert from 'node:assert/strict';
import type { LocalEngine } from '../../engine/generation/index.js';
import { PROTOCOL_VERSION, joinMain, startRpcServer, type PeerStream, type RpcServer } from '../../shared/rpc/index.js';
import type { AlignToken, NodeIdentity, ShadowReply, ShadowRequest } from '../../shared/rpc/messages.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from './harness/answers.js';
import { TestCluster, stopCluster } from './harness/test-cluster.js';
import { openReference } from './harness/test-models.js';
import { testSettings } from './harness/test-settings.js';
import { WAIT_LIMIT_MS, waitUntil } from './harness/wait-until.js';

const LAYERS = 4;
const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 20, logprobs: 300 });

type RogueStream = PeerStream<ShadowReply, ShadowRequest>;

describe('a shadow that does not behave', () => {
  let reference: LocalEngine;
  let expected: CollectedAnswer;
  let cluster: TestCluster;
  let rogue: RpcServer | null = null;

  before(async () => {
    reference = await openReference('tiny');
    expected = await collect(reference.generate(REQUEST, new AbortController().signal));
  });

  after(() => {
    reference.dispose();
  });

  beforeEach(async () => {
    cluster = await TestCluster.start({ workers: 3 });
  });

  afterEach(async function () {
    await stopCluster(this, cluster);
    await rogue?.stop();
  });

  async function startRogue(onToken: (stream: RogueStream, token: AlignToken) => void): Promise<void> {
    const main = (await cluster.status()).nodes[0]?.identity;
    assert.ok(main !== undefined);
    const { cluster: name, modelName, packDigest } = main;
    const identity: NodeIdentity = {
      ...{ id: 'rogue', role: 'ROLE_SHADOW', cluster: name, protocolVersion: PROTOCOL_VERSION, modelName, packDigest },
      ...{ bootId: 'rogue boot', address: '', device: 'none' },
    };
    const { network } = testSettings('shadow', '');
    rogue = await startRpcServer({
      ...{ host: '127.0.0.1', port: 0, network, log: cluster.log.logger('rogue'), identity: () => identity },
      shadow: (stream) => {
        stream.onClose(() => undefined);
        stream.onMessage((message) => {
          if (message.kind === 'hello') stream.send({ kind: 'welcome', welcome: { identity, partialPack: false } });
          if (message.kind === 'token') onToken(stream, message.token);
        });
      },
    });
    identity.address = rogue.address;
    await joinMain(cluster.mainAddress, identity, WAIT_LIMIT_MS);
    await cluster.waitForRoster(3, 1);
  }

  const predict = (stream: RogueStream, token: AlignToken, layer: number, experts: number[], ahead = 0): void => {
    const { epoch, sequence, position } = token;
    stream.send({
      kind: 'prediction',
      prediction: { epoch, sequence, position: position + ahead, layer, experts, workers: [], restart: false },
    });
  };

  it('predicts the same wrong experts again and again: the answer is as without it', async () => {
    await startRogue((stream, token) => {
      for (let layer = 0; layer < LAYERS; layer++) predict(stream, token, layer, [6, 7], 1);
    });
    const answer = await cluster.ask(REQUEST);
    assertSameAnswer(answer, expected);
    assert.ok(answer.finished.sep !== null && answer.finished.sep.recall < 0.9);
  });

  it('predicts too late, too far ahead, and for sequences that are not there: the answer is as without it', async () => {
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
      await waitUntil('the loss is logged', () => cluster.log.matching('which the model has not').length > 0);
    });
  }
});
