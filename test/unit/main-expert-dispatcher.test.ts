import assert from 'node:assert/strict';
import { TestLog } from '../integration/harness/test-log.js';
import { ExpertDispatcher, MAX_ATTEMPTS, type WorkerDirectory } from '../../main-node/cluster/expert-dispatcher.js';
import type { ExpertWork } from '../../main-node/cluster/worker-link.js';
import { OdmoeError, type ErrorCode } from '../../shared/errors/index.js';
import { planPlacement } from '../../shared/placement/index.js';
import type { ExecuteResult, Placement } from '../../shared/rpc/messages.js';

const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
const never = new AbortController().signal;

const WORK: ExpertWork = {
  sequence: 1,
  position: 4,
  layer: 0,
  expert: 3,
  rows: 1,
  hidden: new Uint8Array(8),
  last: false,
};

const RESULT: ExecuteResult = {
  requestId: 1,
  epoch: 1,
  rows: 1,
  hiddenSize: 2,
  dtype: 'TENSOR_TYPE_F32',
  output: new Uint8Array(8),
  wasLoaded: true,
  stallUs: 0,
  executeUs: 0,
};

/** A cluster whose workers answer by script: a code to fail with, or null to do the work. */
class ScriptedCluster implements WorkerDirectory {
  readonly log: { workerId: string; epoch: number; last: boolean }[] = [];
  private epoch = 1;
  placement: Placement | null = null;

  constructor(
    private readonly workers: string[],
    private readonly answer: (workerId: string, attempt: number) => ErrorCode | null,
  ) {
    this.plan();
  }

  worker(id: string) {
    if (!this.workers.includes(id)) return null;
    return {
      execute: async (work: ExpertWork, epoch: number): Promise<ExecuteResult> => {
        this.log.push({ workerId: id, epoch, last: work.last });
        const code = this.answer(id, this.log.length);
        if (code === null) return RESULT;
        if (code === 'WORKER_LOST') this.lose(id);
        if (code === 'STALE_EPOCH') this.plan();
        throw new OdmoeError(code, 'scripted');
      },
    };
  }

  outstanding(): Map<string, number> {
    return new Map();
  }

  async waitForPlacement(): Promise<Placement> {
    if (this.placement === null) throw new OdmoeError('NO_WORKERS', 'scripted: none came');
    return this.placement;
  }

  private lose(id: string): void {
    this.workers.splice(this.workers.indexOf(id), 1);
    this.plan();
  }

  private plan(): void {
    this.epoch += 1;
    const workers = this.workers.map((id) => ({ id, address: '', slots: 1 }));
    const shape = { layers: 4, experts: 8, expertsPerToken: 2 };
    this.placement =
      workers.length === 0 ? null : planPlacement({ epoch: this.epoch, workers, groupSize: 'auto', ...shape });
  }
}

const dispatcher = (cluster: WorkerDirectory) => new ExpertDispatcher(cluster, 10, SILENT);

describe('main: the expert dispatcher', () => {
  it('sends to the worker asked for', async () => {
    const cluster = new ScriptedCluster(['a', 'b'], () => null);
    const { resent } = await dispatcher(cluster).run(WORK, 'b', never);
    assert.equal(resent, false);
    assert.deepEqual(cluster.log, [{ workerId: 'b', epoch: 2, last: false }]);
  });

  it('sends lost work to another worker under the new epoch, to be dropped after it', async () => {
    const cluster = new ScriptedCluster(['a', 'b', 'c'], (id) => (id === 'b' ? 'WORKER_LOST' : null));
    const { resent } = await dispatcher(cluster).run(WORK, 'b', never);
    assert.equal(resent, true);
    assert.deepEqual(cluster.log, [
      { workerId: 'b', epoch: 2, last: false },
      { workerId: 'a', epoch: 3, last: true },
    ]);
  });

  it('logs a failure that comes back once for each worker and expert', async () => {
    const cluster = new ScriptedCluster(['a', 'b'], (id) => (id === 'b' ? 'PACK_CORRUPT' : null));
    const log = new TestLog();
    const dispatching = new ExpertDispatcher(cluster, 10, log.logger('main'));
    for (let token = 0; token < 5; token++) await dispatching.run(WORK, 'b', never);
    assert.equal(log.matching('warn expert is sent again').length, 1);
    await dispatching.run({ ...WORK, expert: WORK.expert + 1 }, 'b', never);
    assert.equal(log.matching('warn expert is sent again').length, 2);
  });

  it('goes to another worker at once when the one asked for has left', async () => {
    const cluster = new ScriptedCluster(['a'], () => null);
    const { resent } = await dispatcher(cluster).run(WORK, 'gone', never);
    assert.equal(resent, true);
    assert.equal(cluster.log[0]?.workerId, 'a');
  });

  it('asks a worker that answers with an error no more, and fails with that error when all do', async () => {
    const cluster = new ScriptedCluster(['a', 'b', 'c'], () => 'PACK_CORRUPT');
    await assert.rejects(dispatcher(cluster).run(WORK, 'b', never), { code: 'PACK_CORRUPT' });
    assert.deepEqual(cluster.log.map(({ workerId }) => workerId).sort(), ['a', 'b', 'c']);
  });

  it('repeats under the current epoch when a newer placement overtook the work', async () => {
    const cluster = new ScriptedCluster(['a'], (_, attempt) => (attempt < 3 ? 'STALE_EPOCH' : null));
    await dispatcher(cluster).run(WORK, 'a', never);
    assert.deepEqual(
      cluster.log.map(({ epoch }) => epoch),
      [2, 3, 4],
    );
  });

  it('fails with NO_WORKERS when the last one is lost and none comes', async () => {
    const cluster = new ScriptedCluster(['a', 'b'], () => 'WORKER_LOST');
    await assert.rejects(dispatcher(cluster).run(WORK, 'a', never), { code: 'NO_WORKERS' });
  });

  it('gives up work that no number of attempts gets done', async () => {
    const cluster = new ScriptedCluster(['a'], () => 'STALE_EPOCH');
    await assert.rejects(dispatcher(cluster).run(WORK, 'a', never), { code: 'STALE_EPOCH' });
    assert.equal(cluster.log.length, MAX_ATTEMPTS);
  });

  it('does not send for a request that is cancelled', async () => {
    const cluster = new ScriptedCluster(['a'], () => null);
    await assert.rejects(dispatcher(cluster).run(WORK, 'a', AbortSignal.abort()), { code: 'CANCELLED' });
    assert.deepEqual(cluster.log, []);
  });
});
