import assert from 'node:assert/strict';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { RpcServer } from '../../shared/transport/transport.js';
import type { Execute, NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { VIRTUAL_LIMIT_MS, VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { plainResult } from '../unit/wire-messages.js';
import { joinMain } from '../../shared/transport/node-clients.js';
import { plainIdentity } from '../unit/plain-identity.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 20, logprobs: 300 });
const EXECUTE_TIMEOUT_MS = 300;

type RogueStream = PeerStream<WorkerReply, WorkerRequest>;

const errorReply = (execute: Execute, code: string): WorkerReply => ({
  kind: 'error',
  error: { code, message: 'scripted', requestId: execute.requestId, epoch: execute.epoch },
});

/** The ways in which a rogue answers an execute. */
const MANNERS: Record<string, (stream: RogueStream, execute: Execute) => void> = {
  'never answers': () => undefined,
  'always says that the epoch is old': (stream, execute) => {
    stream.send(errorReply(execute, 'STALE_EPOCH'));
  },
  'always says that it is full': (stream, execute) => {
    stream.send(errorReply(execute, 'QUEUE_FULL'));
  },
  'answers with a code that does not exist': (stream, execute) => {
    stream.send(errorReply(execute, 'MADE_UP'));
  },
  'ends its stream at every execute': (stream) => {
    stream.close();
  },
  'answers with rows of another size': (stream, execute) => {
    const { requestId, epoch } = execute;
    const expert = { expert: execute.experts[0]?.expert ?? 0, output: new Uint8Array(8) };
    stream.send({ kind: 'result', result: plainResult({ requestId, epoch, hiddenSize: 2, expert }) });
  },
};

describe('a misbehaving simulated worker', () => {
  let expected: CollectedAnswer;
  let cluster: VirtualCluster | null = null;
  let rogue: RpcServer | null = null;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    await rogue?.stop();
    cluster = null;
    rogue = null;
  });

  async function startRogue(
    running: VirtualCluster,
    onExecute: (stream: RogueStream, execute: Execute) => void,
  ): Promise<void> {
    const main = (await running.status()).nodes[0]?.identity;
    assert.ok(main !== undefined);
    const { cluster: name, modelName, packDigest } = main;
    const identity: NodeIdentity = plainIdentity({
      id: 'rogue',
      cluster: name,
      modelName,
      packDigest,
      bootId: 'rogue boot',
      address: '',
      device: 'none',
    });
    const { network } = testSettings('worker', '');
    const { transport } = running.host('rogue');
    rogue = await transport.serve({
      host: 'rogue',
      port: 0,
      network,
      log: running.log.logger('rogue'),
      node: { identify: () => identity },
      worker: {
        serve: (stream) => {
          stream.onClose(() => undefined);
          stream.onMessage((message) => {
            if (message.kind === 'hello')
              stream.send({ kind: 'welcome', welcome: { identity, partialPack: false, highestEpoch: 0 } });
            if (message.kind === 'execute') onExecute(stream, message.execute);
          });
        },
      },
    });
    identity.address = rogue.address;
    await running.passing(joinMain(transport, running.mainAddress, identity, VIRTUAL_LIMIT_MS));
  }

  for (const [manner, onExecute] of Object.entries(MANNERS)) {
    it(`${manner}: the answer is as without it`, async () => {
      const network = { executeTimeoutMs: EXECUTE_TIMEOUT_MS };
      cluster = await VirtualCluster.start({ workers: 2, main: { network } });
      let executes = 0;
      await startRogue(cluster, (stream, execute) => {
        executes += 1;
        onExecute(stream, execute);
      });
      await cluster.waitForRoster(3, 0);
      assertSameAnswer(await cluster.ask(REQUEST), expected);
      assert.ok(executes > 0, 'it was asked');
    });
  }

  it('is left alone where it hangs, and status shows it', async () => {
    const network = { executeTimeoutMs: EXECUTE_TIMEOUT_MS };
    const running = (cluster = await VirtualCluster.start({ workers: 1, main: { network } }));
    await startRogue(running, () => undefined);
    await running.waitForRoster(2, 0);
    assertSameAnswer(await running.ask(REQUEST), expected);
    await running.waitUntil('the problem is reported', async () => {
      const { problems } = await running.status();
      return problems.some(({ id, message }) => id === 'rogue' && message.includes('run out of time'));
    });
  });
});
