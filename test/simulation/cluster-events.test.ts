import assert from 'node:assert/strict';
import type { ClusterEvent, NodeView, PassTimeline } from '../../shared/wire/cluster-events.js';
import { requestFor } from '../integration/harness/answers.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

/** Time limit in which a killed node must be shown as lost. */
const LOST_LIMIT_MS = 2000;
/** Latency of the clusters' links in each direction. */
const LATENCY_MS = 0.1;

/** Collects the events of the feed that also serves the page. */
class Listener {
  readonly events: ClusterEvent[] = [];
  private readonly queue: { next(): Promise<ClusterEvent | null>; end(): void };

  constructor(
    private readonly cluster: VirtualCluster,
    wantsPasses = true,
  ) {
    this.queue = cluster.node('main').events(wantsPasses) ?? assert.fail('main does not run');
    void this.listen();
  }

  /** Waits in virtual time for such an event. The first `after` events are ignored. */
  async until<Type extends ClusterEvent['type']>(
    type: Type,
    isWanted: (event: Extract<ClusterEvent, { type: Type }>) => boolean = () => true,
    after = 0,
  ): Promise<Extract<ClusterEvent, { type: Type }>> {
    const isOf = (event: ClusterEvent): event is Extract<ClusterEvent, { type: Type }> => event.type === type;
    const find = () => this.events.slice(after).find((event) => isOf(event) && isWanted(event));
    await this.cluster.waitUntil(`a ${type} event is as wanted`, () => find() !== undefined);
    const found = find();
    return found !== undefined && isOf(found) ? found : assert.fail();
  }

  end(): void {
    this.queue.end();
  }

  get passes(): PassTimeline[] {
    return this.events.flatMap((event) => (event.type === 'pass' ? [event.pass] : []));
  }

  private async listen(): Promise<void> {
    for (let event = await this.queue.next(); event !== null; event = await this.queue.next()) this.events.push(event);
  }
}

const nodeOf = (event: { cluster: { nodes: NodeView[] } }, id: string): NodeView =>
  event.cluster.nodes.find((node) => node.id === id) ?? assert.fail(`no ${id}`);

describe('the events of a simulated cluster', function () {
  this.timeout(30_000);
  let cluster: VirtualCluster | null = null;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  it('show within 2 s that a worker was killed, and the reason, until it is back', async () => {
    cluster = await VirtualCluster.start({ workers: 2 });
    const listener = new Listener(cluster);
    const first = await listener.until('cluster');
    assert.deepEqual([nodeOf(first, 'worker-1').state, nodeOf(first, 'worker-1').group], ['up', 0]);
    const roundTripMs = (event: { cluster: { nodes: NodeView[] } }): number =>
      nodeOf(event, 'worker-1').link?.roundTripMs ?? assert.fail('worker-1 has no link');
    const asked = await listener.until('cluster', (event) => roundTripMs(event) > 0);
    assert.ok(roundTripMs(asked) >= 2 * LATENCY_MS && roundTripMs(asked) < 3 * LATENCY_MS);
    await cluster.sleep(1500);
    const before = listener.events.length;
    const killedMs = cluster.simulated.clock.nowMs;
    cluster.node('worker-1').kill();
    const lost = await listener.until('cluster', (event) => nodeOf(event, 'worker-1').state === 'lost', before);
    assert.ok(cluster.simulated.clock.nowMs - killedMs <= LOST_LIMIT_MS);
    assert.notEqual(nodeOf(lost, 'worker-1').reason, '');
    assert.equal(nodeOf(lost, 'worker-1').link, null);
    const problem = lost.cluster.problems.find(({ node }) => node === 'worker-1');
    assert.equal(problem?.code, 'WORKER_LOST');
    assert.notEqual(problem.advice, '');
    assert.deepEqual(lost.cluster.groups, [['worker-0']]);
    const problems = (await cluster.status()).problems;
    assert.deepEqual(
      problems.map(({ id, code }) => `${id} ${code}`),
      ['worker-1 WORKER_LOST'],
    );
    const after = listener.events.length;
    await cluster.startAgain('worker-1');
    const back = await listener.until('cluster', (event) => nodeOf(event, 'worker-1').state === 'up', after);
    assert.equal(back.cluster.nodes.length, 3);
    assert.deepEqual((await cluster.status()).problems, []);
    listener.end();
  });

  it("trace passes: a worker's work lies between the message and the answer, on the clock of main", async () => {
    cluster = await VirtualCluster.start({ workers: 2, shadow: 'fp16' });
    await cluster.ask(requestFor([1, 2, 3, 4], { maxTokens: 8 }));
    const listener = new Listener(cluster);
    await listener.until('figures', ({ samples }) => samples.some(({ tokensPerS }) => tokensPerS > 0));
    const decoding = listener.passes.filter(({ members }) => members.every(({ kind }) => kind === 'decode'));
    assert.ok(decoding.length > 0);
    const causes = new Set<string>();
    for (const pass of listener.passes) {
      let endMs = 0;
      for (const layer of pass.layers) {
        assert.ok(endMs <= layer.beginMs && layer.beginMs <= layer.routedMs, 'layers follow one another');
        assert.ok(layer.routedMs <= layer.answeredMs && layer.answeredMs <= layer.endMs);
        endMs = layer.endMs;
        for (const expert of layer.experts) {
          causes.add(expert.foretold);
          const { sentMs, arrivedMs, loadBeginMs, loadEndMs, executeBeginMs, executeEndMs, receivedMs } = expert;
          const times = [layer.routedMs, sentMs, arrivedMs, executeBeginMs, executeEndMs, receivedMs, layer.answeredMs];
          assert.deepEqual(
            times,
            times.toSorted((left, right) => left - right),
            `layer ${layer.layer}`,
          );
          assert.ok(arrivedMs - sentMs >= LATENCY_MS - 0.001, 'the way takes as long as the link');
          if (loadBeginMs !== null && loadEndMs !== null) {
            assert.ok(loadBeginMs < loadEndMs && loadEndMs <= executeBeginMs + 0.001);
          }
        }
      }
      assert.ok(endMs <= pass.durationMs);
    }
    assert.ok(causes.has('predicted'), [...causes].join());
    assert.ok(decoding.every(({ predictions }) => predictions.length > 0));
    const heat = await listener.until('heat', ({ heat: { counts } }) => counts.some((count) => count > 0));
    assert.equal(heat.heat.counts.length, heat.heat.expertLayers * heat.heat.experts);
    const { recall } = await listener.until('recall', ({ recall: { activated } }) => activated.length > 0);
    assert.equal(recall.correct.length, recall.activated.length);
    listener.end();
  });

  it('leave passes out where they are not wanted, and end when main stops', async () => {
    cluster = await VirtualCluster.start({ workers: 1 });
    const listener = new Listener(cluster, false);
    await cluster.ask(requestFor([1, 2, 3, 4], { maxTokens: 3 }));
    await listener.until('cluster');
    assert.deepEqual(listener.passes, []);
    const queue = cluster.node('main').events(true) ?? assert.fail('main does not run');
    let next = await cluster.passing(queue.next());
    assert.equal(next?.type, 'cluster');
    await cluster.stopNode('main');
    for (let events = 0; next !== null; events += 1) {
      assert.ok(events < 100);
      next = await queue.next();
    }
  });
});
