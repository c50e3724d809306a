import assert from 'node:assert/strict';
import type { JoinReply, NodeIdentity } from '../../shared/wire/messages.js';
import { requestFor } from '../integration/harness/answers.js';
import { VIRTUAL_LIMIT_MS, VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';
import { packOf } from '../integration/harness/test-models.js';
import { joinMain } from '../../shared/transport/node-clients.js';

describe('the membership of a simulated cluster', () => {
  let cluster: VirtualCluster | null = null;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  async function problemsOf(running: VirtualCluster, count: number) {
    await running.waitUntil(
      `${count} problems are shown`,
      async () => (await running.status()).problems.length >= count,
    );
    return (await running.status()).problems;
  }

  it('adds workers and removes them, each time under a newer epoch', async () => {
    cluster = await VirtualCluster.start({ workers: 2 });
    const first = (await cluster.status()).placement?.epoch ?? 0;
    await cluster.addWorker('worker-2');
    await cluster.waitForRoster(3, 0);
    const second = (await cluster.status()).placement?.epoch ?? 0;
    assert.ok(second > first);
    await cluster.stopNode('worker-0');
    await cluster.waitForRoster(2, 0);
    assert.ok(((await cluster.status()).placement?.epoch ?? 0) > second);
    assert.equal((await cluster.ask(requestFor([1, 2]))).tokens.length, 12);
  });

  it('uses a worker that joins in the middle of an answer', async () => {
    cluster = await VirtualCluster.start({ workers: 1, shadow: 'int8' });
    const running = cluster;
    const request = requestFor([1, 2, 3], { maxTokens: 40 });
    const undisturbed = await running.ask(request);
    let added: Promise<void> = Promise.resolve();
    const answer = await running.ask(request, undefined, (count) => {
      if (count === 5) added = running.addWorker('late');
    });
    await added;
    assert.deepEqual(answer.tokens, undisturbed.tokens);
    await running.waitForRoster(2, 1);
    assert.deepEqual((await running.ask(request)).tokens, undisturbed.tokens);
    await running.waitUntil('the new worker has executed something', async () => {
      const late = (await running.status()).nodes.find(({ identity }) => identity.id === 'late');
      return (late?.executions ?? 0) > 0;
    });
  });

  it('dials the configured peers, and reports silent ones', async () => {
    const peers = [
      { role: 'worker' as const, id: 'w', address: 'w:7600' },
      { role: 'worker' as const, id: 'absent', address: 'absent:7600' },
    ];
    const running = (cluster = await VirtualCluster.start({ workers: 0, main: { peers } }));
    await running.add('worker', 'w');
    await running.waitUntil('the worker is placed and the other one is reported', async () => {
      const { placement, problems } = await running.status();
      return placement?.workers.length === 1 && problems.some(({ id }) => id === 'absent');
    });
  });

  it('refuses a worker of another model or cluster, and both log the reason', async () => {
    const running = (cluster = await VirtualCluster.start({ workers: 1 }));
    await running.addWorker('other-model', { packDirectory: await packOf('demo') });
    await running.addWorker('foreign', { cluster: 'elsewhere' });
    const problems = await problemsOf(running, 2);
    for (const [id, reason] of [
      ['other-model', /model/],
      ['foreign', /cluster name.*elsewhere/],
    ] as const) {
      const problem = problems.find((candidate) => candidate.id === id);
      assert.equal(problem?.code, 'NODE_REFUSED');
      assert.match(problem.message, reason);
      await running.waitUntil(`${id} says so too`, () => running.log.matching(`${id}: warn`).length > 0);
    }
    assert.equal((await running.status()).placement?.workers.length, 1);
  });

  it('stores no address that cannot be dialled', async () => {
    cluster = await VirtualCluster.start({ workers: 1 });
    const { placement, nodes } = await cluster.status();
    const identity = nodes.find((node) => node.identity.id === placement?.workers[0]?.id)?.identity;
    assert.ok(identity !== undefined);
    const { transport } = cluster.host('stray');
    for (const address of ['unix:/run/some.sock:1', '127.0.0.1:99999', '127.0.0.1:port', ':', '']) {
      const stray: NodeIdentity = { ...identity, id: 'stray', bootId: 'b', address };
      const reply: JoinReply = await cluster.passing(joinMain(transport, cluster.mainAddress, stray, VIRTUAL_LIMIT_MS));
      assert.equal(reply.kind, 'refusal', address);
    }
    assert.deepEqual((await cluster.status()).problems, []);
  });

  it('keeps a second shadow as standby and uses it when the first is gone', async () => {
    cluster = await VirtualCluster.start({ workers: 2, shadow: 'int8' });
    await cluster.addShadow('second');
    await cluster.waitForRoster(2, 2);
    assert.ok((await cluster.ask(requestFor([1, 2]))).finished.sep !== null);
    await cluster.stopNode('shadow');
    await cluster.waitForRoster(2, 1);
    const { sep } = (await cluster.ask(requestFor([1, 2], { maxTokens: 30 }))).finished;
    assert.ok((sep?.predictedCorrectly ?? 0) > 0);
  });

  it('serves again under a newer epoch when main is restarted', async () => {
    const running = (cluster = await VirtualCluster.start({ workers: 2, shadow: 'int8' }));
    const before = (await running.status()).placement?.epoch ?? 0;
    running.node('main').kill();
    await running.startAgain('main');
    await running.waitForRoster(2, 1);
    assert.ok(((await running.status()).placement?.epoch ?? 0) > before);
    const { finished } = await running.ask(requestFor([1, 2], { maxTokens: 30 }));
    assert.ok((finished.sep?.predictedCorrectly ?? 0) > 0);
  });
});
