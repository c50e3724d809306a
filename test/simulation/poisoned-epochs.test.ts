import assert from 'node:assert/strict';
import { EPOCH_LIMIT, PEER_EPOCH_LIMIT } from '../../shared/wire/epochs.js';
import { OLDEST_PROTOCOL } from '../../shared/wire/limits.js';
import type { NodeIdentity, Placement } from '../../shared/wire/messages.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { stopVirtualCluster, VIRTUAL_LIMIT_MS, VirtualCluster } from './virtual-cluster.js';
import { joinMain, openShadowStream, openWorkerStream } from '../../shared/transport/node-clients.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 8, logprobs: 5 });
const { network } = testSettings('main', '');
/** Time after which its peers know that a killed main is gone. */
const MAIN_GONE_MS = 2000;

describe('a simulated peer that names an impossible epoch', () => {
  let expected: CollectedAnswer;
  let cluster: VirtualCluster;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  /** The identity of a node of this role that belongs to the cluster. */
  async function identityOf(role: NodeIdentity['role'], id: string): Promise<NodeIdentity> {
    const main = (await cluster.status()).nodes[0]?.identity ?? assert.fail('main tells of itself');
    return { ...main, role, id, bootId: `${id} boot`, address: '', protocolVersion: OLDEST_PROTOCOL };
  }

  async function assertServes(workers: number, shadows: number): Promise<void> {
    await cluster.waitForRoster(workers, shadows);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    const { placement } = await cluster.status();
    assert.ok(placement !== null && placement.epoch < PEER_EPOCH_LIMIT, `${placement?.epoch} can be gone above`);
  }

  it('as a worker in its welcome: main continues as without it, also after a restart', async () => {
    cluster = await VirtualCluster.start({ workers: 1 });
    const { transport } = cluster.host('rogue');
    const identity = await identityOf('ROLE_WORKER', 'rogue');
    let placements = 0;
    const server = await transport.serve({
      host: 'rogue',
      port: 0,
      network,
      log: cluster.log.logger('rogue'),
      node: { identify: () => identity },
      worker: {
        serve: (stream) => {
          stream.onClose(() => undefined);
          stream.onMessage((message) => {
            if (message.kind === 'hello')
              stream.send({ kind: 'welcome', welcome: { identity, partialPack: true, highestEpoch: 2 ** 53 - 2 } });
            if (message.kind === 'prospect') placements += 1;
          });
        },
      },
    });
    identity.address = server.address;
    const join = (): Promise<unknown> =>
      cluster.passing(joinMain(transport, cluster.mainAddress, identity, VIRTUAL_LIMIT_MS));
    await join();
    await cluster.waitUntil('the rogue is connected', () => placements > 0);
    await assertServes(1, 0);
    cluster.node('main').kill();
    await cluster.startAgain('main');
    await join();
    await cluster.waitUntil('the rogue is connected again', () => placements > 1);
    await assertServes(1, 0);
    await server.stop();
  });

  for (const poison of [PEER_EPOCH_LIMIT, EPOCH_LIMIT]) {
    it(`as a false main that announces ${poison}: worker and shadow serve the next main, and the one after it`, async () => {
      cluster = await VirtualCluster.start({ workers: 2, shadow: 'int8' });
      const { placement } = await cluster.status();
      assert.ok(placement !== null);
      const hello = await identityOf('ROLE_MAIN', 'false-main');
      cluster.node('main').kill();
      const received: number[] = [];
      cluster.simulated.network.tap = (_way, _from, _to, message) => {
        if (message.kind === 'welcome') received.push(message.welcome.highestEpoch);
      };
      for (const id of ['worker-0', 'shadow']) await announce(hello, { ...placement, epoch: poison }, id);
      for (let start = 0; start < 2; start++) {
        await cluster.startAgain('main');
        await cluster.waitForRoster(2, 1);
        assertSameAnswer(await cluster.ask(REQUEST), expected);
        const { sep } = (await cluster.ask(REQUEST)).finished;
        assert.ok((sep?.recall ?? 0) > 0, 'shadow predicts, and workers hear it');
        cluster.node('main').kill();
      }
      await cluster.startAgain('main');
      assert.ok(received.length > 0 && Math.max(...received) <= PEER_EPOCH_LIMIT, 'nobody tells it on');
    });
  }

  /** Waits until the daemon knows that its main is gone, then says hello as a main, publishes the placement, and closes the stream. */
  async function announce(hello: NodeIdentity, placement: Placement, id: string): Promise<void> {
    const { transport } = cluster.host(`false main of ${id}`);
    const { address } = cluster.node(id);
    await cluster.sleep(MAIN_GONE_MS);
    const stream =
      id === 'shadow' ? openShadowStream(transport, address, network) : openWorkerStream(transport, address, network);
    const received: (string | number)[] = [];
    stream.onClose(() => undefined);
    stream.onMessage((message) => {
      received.push(message.kind);
      if (message.kind === 'welcome') stream.send({ kind: 'placement', placement });
    });
    stream.send({ kind: 'hello', hello });
    await cluster.sleep(MAIN_GONE_MS);
    assert.ok(received.includes('welcome') && !received.includes('error'), `${id} says ${received.join(', ')}`);
    stream.close();
    await cluster.sleep(MAIN_GONE_MS);
  }
});
