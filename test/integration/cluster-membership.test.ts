import assert from 'node:assert/strict';
import { startMain } from '../../main-node/main.js';
import { startWorker } from '../../worker-node/main.js';
import { requestFor } from './harness/answers.js';
import { TestCluster, stopCluster } from './harness/test-cluster.js';
import { TestLog } from './harness/test-log.js';
import { packOf } from './harness/test-models.js';
import { testSettings } from './harness/test-settings.js';
import { WAIT_LIMIT_MS, waitUntil } from './harness/wait-until.js';
import { ENVIRONMENT, fetchStatus, joinMain } from '../wall.js';

describe('membership of a cluster', () => {
  let cluster: TestCluster | null = null;

  afterEach(async function () {
    await stopCluster(this, cluster);
    cluster = null;
  });

  async function problemsOf(running: TestCluster, count: number) {
    await waitUntil(`${count} problems are told`, async () => (await running.status()).problems.length >= count);
    return (await running.status()).problems;
  }

  it('takes workers in and lets them go, each time under a newer epoch', async () => {
    cluster = await TestCluster.start({ workers: 2 });
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

  it('uses a worker that comes in the middle of an answer', async () => {
    cluster = await TestCluster.start({ workers: 1, shadow: 'int8' });
    const running = cluster;
    const request = requestFor([1, 2, 3], { maxTokens: 300 });
    const undisturbed = await running.ask(request);
    let added: Promise<void> = Promise.resolve();
    const answer = await running.ask(request, undefined, (count) => {
      if (count === 5) added = running.addWorker('late');
    });
    await added;
    assert.deepEqual(answer.tokens, undisturbed.tokens);
    await running.waitForRoster(2, 1);
    assert.deepEqual((await running.ask(request)).tokens, undisturbed.tokens);
    await waitUntil('the new worker has executed something', async () => {
      const late = (await running.status()).nodes.find(({ identity }) => identity.id === 'late');
      return (late?.executions ?? 0) > 0;
    });
  });

  it('dials the peers of its configuration, and tells which do not answer', async () => {
    const pack = await packOf('tiny');
    const log = new TestLog();
    const worker = await startWorker(testSettings('worker', pack, { id: 'w' }), ENVIRONMENT, log.logger('w'));
    const peers = [
      { role: 'worker' as const, id: 'w', address: worker.address },
      { role: 'worker' as const, id: 'absent', address: '127.0.0.1:9' },
    ];
    const main = await startMain(testSettings('main', pack, { peers }), ENVIRONMENT, log.logger('main'));
    try {
      await waitUntil('the worker is placed and the other one is told', async () => {
        const { placement, problems } = await fetchStatus(main.address, WAIT_LIMIT_MS);
        return placement?.workers.length === 1 && problems.some(({ id }) => id === 'absent');
      });
    } finally {
      await main.stop();
      await worker.stop();
    }
  });

  it('refuses a worker of another model or cluster, and both say why', async () => {
    cluster = await TestCluster.start({ workers: 1 });
    const { mainAddress, log } = cluster;
    const other = await startWorker(
      testSettings('worker', await packOf('demo'), { id: 'other-model', mainAddress }),
      ENVIRONMENT,
      log.logger('other-model'),
    );
    const foreign = await startWorker(
      testSettings('worker', await packOf('tiny'), { id: 'foreign', cluster: 'elsewhere', mainAddress }),
      ENVIRONMENT,
      log.logger('foreign'),
    );
    try {
      const problems = await problemsOf(cluster, 2);
      for (const [id, reason] of [
        ['other-model', /model/],
        ['foreign', /cluster name.*elsewhere/],
      ] as const) {
        const problem = problems.find((candidate) => candidate.id === id);
        assert.equal(problem?.code, 'NODE_REFUSED');
        assert.match(problem.message, reason);
        await waitUntil(`${id} says so too`, () => log.matching(`${id}: warn`).length > 0);
      }
      assert.equal((await cluster.status()).placement?.workers.length, 1);
    } finally {
      await other.stop();
      await foreign.stop();
    }
  });

  it('takes up no address that cannot be dialled', async () => {
    cluster = await TestCluster.start({ workers: 1 });
    const { placement, nodes } = await cluster.status();
    const identity = nodes.find((node) => node.identity.id === placement?.workers[0]?.id)?.identity;
    assert.ok(identity !== undefined);
    for (const address of ['unix:/run/some.sock:1', '127.0.0.1:99999', '127.0.0.1:port', ':', '']) {
      const reply = await joinMain(
        cluster.mainAddress,
        { ...identity, id: 'stray', bootId: 'b', address },
        WAIT_LIMIT_MS,
      );
      assert.equal(reply.kind, 'refusal', address);
    }
    assert.deepEqual((await cluster.status()).problems, []);
  });

  it('gives a second daemon of the same id no place, and says so', async () => {
    cluster = await TestCluster.start({ workers: 1 });
    const twin = await startWorker(
      testSettings('worker', await packOf('tiny'), { id: 'worker-0', mainAddress: cluster.mainAddress }),
      ENVIRONMENT,
      cluster.log.logger('twin'),
    );
    try {
      const [problem] = await problemsOf(cluster, 1);
      assert.match(problem?.message ?? '', /worker-0.*its own --id/);
      assert.equal((await cluster.ask(requestFor([1, 2]))).tokens.length, 12);
    } finally {
      await twin.stop();
    }
  });

  it('keeps a second shadow standing by and uses it when the first is gone', async () => {
    cluster = await TestCluster.start({ workers: 2, shadow: 'int8' });
    await cluster.addShadow('second');
    await cluster.waitForRoster(2, 2);
    assert.ok((await cluster.ask(requestFor([1, 2]))).finished.sep !== null);
    await cluster.stopNode('shadow');
    await cluster.waitForRoster(2, 1);
    const { sep } = (await cluster.ask(requestFor([1, 2], { maxTokens: 200 }))).finished;
    assert.ok((sep?.predictedCorrectly ?? 0) > 0);
  });

  it('serves again under a newer epoch when main is restarted', async () => {
    cluster = await TestCluster.start({ workers: 2, shadow: 'int8' });
    const before = (await cluster.status()).placement?.epoch ?? 0;
    const port = Number(cluster.mainAddress.split(':')[1]);
    await cluster.stopNode('main');
    const settings = { ...testSettings('main', await packOf('tiny')), listenPort: port };
    const main = await startMain(settings, ENVIRONMENT, cluster.log.logger('main again'));
    try {
      await cluster.waitForRoster(2, 1);
      assert.ok(((await cluster.status()).placement?.epoch ?? 0) > before);
      const { finished } = await cluster.ask(requestFor([1, 2], { maxTokens: 200 }));
      assert.ok((finished.sep?.predictedCorrectly ?? 0) > 0);
    } finally {
      await main.stop();
    }
  });
});
