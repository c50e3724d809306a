import assert from 'node:assert/strict';
import { NO_TIMES } from '../../shared/wire/messages.js';
import { TestLog } from '../integration/harness/test-log.js';
import type { ExecuteWork, PlacedWorkers, WorkerOrders } from '../../main-node/cluster/placed-workers.js';
import { ExpertDispatcher, MAX_ATTEMPTS, type ExpertOutcome } from '../../main-node/pass/expert-dispatcher.js';
import type { ExpertWork, LayerStep } from '../../main-node/pass/expert-work.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import type { ExpertResult, Placement } from '../../shared/wire/messages.js';

const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
const never = new AbortController().signal;
const GRACE_MS = 10;

/** A layer of a pass of two rows, one of each of two sequences; rows of 8 bytes, each full of its number. */
const STEP: LayerStep = {
  pass: { sequence: 1, position: 4 },
  rows: [
    { sequence: 1, position: 4, rows: 1 },
    { sequence: 2, position: 9, rows: 1 },
  ],
  layer: 0,
  hidden: new Uint8Array(16).map((_, index) => Math.floor(index / 8)),
  outputs: new Uint8Array(32),
};
interface Share {
  workerId: string;
  work: ExpertWork[];
}

const share = (workerId: string, experts = [3]): Share => ({
  workerId,
  work: experts.map((expert) => ({ layer: STEP.layer, expert, rows: [{ row: 1, rank: 0 }], last: false })),
});

type Answer = ErrorCode | 'NaN' | 'Infinity' | null;

const NOT_NUMBERS: Readonly<Record<'NaN' | 'Infinity', number>> = { NaN: 0x7fc00000, Infinity: 0x7f800000 };

/**
 * A cluster whose workers answer for each expert by script: an error code, values that are no numbers, or null for the right output.
 */
class ScriptedCluster implements PlacedWorkers {
  readonly log: { workerId: string; epoch: number; last: boolean; experts: number[] }[] = [];
  readonly sent: ExecuteWork[] = [];
  private readonly links = new Map<string, WorkerOrders>();
  private readonly woken = new Set<() => void>();
  private epoch = 1;
  placement: Placement | null = null;
  graceMs: number[] = [];
  /** "worker: reason" of each distrusted worker. */
  readonly distrusted: string[] = [];

  constructor(
    workers: string[],
    private readonly answer: (workerId: string, attempt: number, expert: number) => Answer,
  ) {
    for (const id of workers) this.links.set(id, this.linkOf(id));
    this.plan();
  }

  worker(id: string): WorkerOrders | null {
    return this.links.get(id) ?? null;
  }

  endSequence(): void {
    assert.fail('the dispatcher ends no sequence');
  }

  distrust(worker: WorkerOrders, why: string): void {
    const [id] = [...this.links].find(([, link]) => link === worker) ?? [];
    if (id === undefined) return;
    this.distrusted.push(`${id}: ${why}`);
    this.lose(id);
  }

  outstanding(): Map<string, number> {
    return new Map();
  }

  async waitForPlacement(graceMs: number): Promise<Placement> {
    if (this.placement === null) await this.waitForChange(graceMs);
    if (this.placement === null) throw new OdmoeError('NO_WORKERS', 'scripted: none came');
    return this.placement;
  }

  waitForChange(graceMs: number): Promise<void> {
    this.graceMs.push(graceMs);
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(done, graceMs);
      this.woken.add(done);
    });
  }

  join(id: string): void {
    this.links.set(id, this.linkOf(id));
    this.plan();
    for (const wake of this.woken) wake();
  }

  lose(id: string): void {
    this.links.delete(id);
    this.plan();
  }

  private linkOf(id: string): WorkerOrders {
    return {
      sendAnnounce: () => undefined,
      sendRelease: () => undefined,
      sendEnd: () => undefined,
      execute: async (work, epoch, onPart) => {
        const experts = work.experts.map(({ expert }) => expert);
        this.log.push({ workerId: id, epoch, last: work.experts.every(({ last }) => last), experts });
        this.sent.push(work);
        const attempt = this.log.length;
        for (const expert of experts) this.reply(id, expert, this.answer(id, attempt, expert), onPart);
      },
    };
  }

  private reply(id: string, expert: number, code: Answer, onPart: (results: readonly ExpertResult[]) => void): void {
    if (code === 'WORKER_LOST') this.lose(id);
    if (code === 'STALE_EPOCH') this.plan();
    if (code === 'WORKER_LOST' || code === 'STALE_EPOCH') throw new OdmoeError(code, 'scripted');
    const isFalse = code === 'NaN' || code === 'Infinity';
    const failure = code === null || isFalse ? null : { code, message: 'scripted' };
    const output = new Uint8Array(8).fill(expert);
    if (isFalse) new DataView(output.buffer).setUint32(4, NOT_NUMBERS[code], true);
    onPart([{ expert, rows: 1, wasLoaded: true, stallUs: 0, executeUs: 0, ...NO_TIMES, output, failure }]);
  }

  private plan(): void {
    this.epoch += 1;
    const workers = [...this.links.keys()].map((id) => ({ id, address: '', slots: 1 }));
    const shape = { layers: 4, experts: 8, expertsPerToken: 2 };
    this.placement =
      workers.length === 0 ? null : planPlacement({ epoch: this.epoch, workers, groupSize: 'auto', ...shape });
  }
}

const dispatcher = (cluster: PlacedWorkers) => new ExpertDispatcher(cluster, GRACE_MS, SILENT);
/** Runs the share and returns "expert worker" of each outcome, with "again" if it was sent again. */
async function outcomes(
  cluster: PlacedWorkers,
  { workerId: asked, work: wanted }: Share,
  signal = never,
): Promise<string[]> {
  const taken: string[] = [];
  const take = ({ work, workerId, result, resent }: ExpertOutcome): void => {
    assert.equal(result.output[0], work.expert);
    taken.push(`${work.expert} ${workerId}${resent ? ' again' : ''}`);
  };
  await dispatcher(cluster).run({ step: STEP, signal, take }, asked, wanted);
  return taken.sort();
}

describe('main: the expert dispatcher', () => {
  it('sends a worker its whole share at once, with each hidden state that it needs once', async () => {
    const cluster = new ScriptedCluster(['a', 'b'], () => null);
    assert.deepEqual(await outcomes(cluster, share('b', [3, 5])), ['3 b', '5 b']);
    assert.deepEqual(cluster.log, [{ workerId: 'b', epoch: 2, last: false, experts: [3, 5] }]);
    const [work] = cluster.sent;
    assert.deepEqual(work?.rows, [{ sequence: 2, position: 9, rows: 1 }]);
    assert.deepEqual([...(work?.hidden ?? [])], new Array(8).fill(1));
    assert.deepEqual(work?.experts[0]?.rows, [], 'all rows of the message');
  });

  it('sends lost work to another worker under the new epoch, to be dropped after it', async () => {
    const cluster = new ScriptedCluster(['a', 'b', 'c'], (id) => (id === 'b' ? 'WORKER_LOST' : null));
    assert.deepEqual(await outcomes(cluster, share('b')), ['3 a again']);
    assert.deepEqual(cluster.log, [
      { workerId: 'b', epoch: 2, last: false, experts: [3] },
      { workerId: 'a', epoch: 3, last: true, experts: [3] },
    ]);
  });

  it('sends on only unanswered work, shared among the remaining workers', async () => {
    const cluster = new ScriptedCluster(['a', 'b', 'c'], (id, _, expert) =>
      id === 'b' && expert > 3 ? 'WORKER_LOST' : null,
    );
    assert.deepEqual(await outcomes(cluster, share('b', [3, 5, 7])), ['3 b', '5 a again', '7 c again']);
  });

  it('sends on an expert that fails while the others of its share continue', async () => {
    const cluster = new ScriptedCluster(['a', 'b'], (id, _, expert) =>
      id === 'b' && expert === 5 ? 'PACK_CORRUPT' : null,
    );
    assert.deepEqual(await outcomes(cluster, share('b', [3, 5, 7])), ['3 b', '5 a again', '7 b']);
  });

  it('logs a repeated failure once for each worker and expert', async () => {
    const cluster = new ScriptedCluster(['a', 'b'], (id) => (id === 'b' ? 'PACK_CORRUPT' : null));
    const log = new TestLog();
    const dispatching = new ExpertDispatcher(cluster, GRACE_MS, log.logger('main'));
    const run = { step: STEP, signal: never, take: () => undefined };
    for (let token = 0; token < 5; token++) await dispatching.run(run, 'b', share('b').work);
    assert.equal(log.matching('warn expert is sent again').length, 1);
    await dispatching.run(run, 'b', share('b', [4]).work);
    assert.equal(log.matching('warn expert is sent again').length, 2);
  });

  it('goes to another worker at once when the requested one has left', async () => {
    const cluster = new ScriptedCluster(['a'], () => null);
    assert.deepEqual(await outcomes(cluster, share('gone')), ['3 a again']);
  });

  it('stops asking a worker that answers with an error, and fails with it when all do and no new one joins', async () => {
    const cluster = new ScriptedCluster(['a', 'b', 'c'], () => 'PACK_CORRUPT');
    await assert.rejects(outcomes(cluster, share('b')), { code: 'PACK_CORRUPT' });
    assert.deepEqual(cluster.log.map(({ workerId }) => workerId).sort(), ['a', 'b', 'c']);
    assert.deepEqual(cluster.graceMs, [GRACE_MS]);
  });

  it('waits for a worker to return when the remaining ones cannot do the work', async () => {
    const cluster = new ScriptedCluster(['a', 'damaged'], (id, attempt) => {
      if (id === 'damaged') return 'PACK_CORRUPT';
      return attempt === 1 ? 'WORKER_LOST' : null;
    });
    setTimeout(() => cluster.join('a'), GRACE_MS / 2);
    assert.deepEqual(await outcomes(cluster, share('a')), ['3 a again']);
    assert.deepEqual(
      cluster.log.map(({ workerId }) => workerId),
      ['a', 'damaged', 'a'],
    );
  });

  it('asks a worker again after it has reconnected, though it failed before', async () => {
    const cluster = new ScriptedCluster(['a'], (_, attempt) => (attempt === 1 ? 'PACK_CORRUPT' : null));
    setTimeout(() => cluster.join('a'), GRACE_MS / 2);
    assert.deepEqual(await outcomes(cluster, share('a')), ['3 a again']);
  });

  it('repeats work under the current epoch when a newer placement overtook it', async () => {
    const cluster = new ScriptedCluster(['a'], (_, attempt) => (attempt < 3 ? 'STALE_EPOCH' : null));
    await outcomes(cluster, share('a'));
    assert.deepEqual(
      cluster.log.map(({ epoch }) => epoch),
      [2, 3, 4],
    );
  });

  it('fails with NO_WORKERS when the last one is lost and none joins', async () => {
    const cluster = new ScriptedCluster(['a', 'b'], () => 'WORKER_LOST');
    await assert.rejects(outcomes(cluster, share('a')), { code: 'NO_WORKERS' });
  });

  it('gives up work that fails after all attempts', async () => {
    const cluster = new ScriptedCluster(['a'], () => 'STALE_EPOCH');
    await assert.rejects(outcomes(cluster, share('a')), { code: 'STALE_EPOCH' });
    assert.equal(cluster.log.length, MAX_ATTEMPTS);
  });

  it('sends nothing for a cancelled request', async () => {
    const cluster = new ScriptedCluster(['a'], () => null);
    await assert.rejects(outcomes(cluster, share('a'), AbortSignal.abort()), { code: 'CANCELLED' });
    assert.deepEqual(cluster.log, []);
  });

  /** Cases: the answer of each worker, in the order in which the workers are asked, and the expected outcome. */
  const lies: readonly {
    what: string;
    answers: Record<string, Answer>;
    taken?: string;
    fails?: { code: ErrorCode; message: RegExp };
    distrusted?: string[];
  }[] = [
    {
      what: 'one that lies is found out by another',
      answers: { b: 'NaN', a: null },
      taken: '3 a again',
      distrusted: ['b'],
    },
    {
      what: 'two that lie differently are found out by a third',
      answers: { b: 'NaN', a: 'Infinity', c: null },
      taken: '3 c again',
      distrusted: ['b', 'a'],
    },
    {
      what: 'where two agree it is the model, and nobody else is asked',
      answers: { b: 'NaN', a: 'NaN', c: null },
      fails: { code: 'MODEL_CORRUPT', message: /b and a.*checkpoint or this prompt/ },
    },
    {
      what: 'where the third agrees with one of two it is the model',
      answers: { b: 'NaN', a: 'Infinity', c: 'Infinity' },
      fails: { code: 'MODEL_CORRUPT', message: /b and a and c/ },
    },
    {
      what: 'where it is alone nobody is blamed',
      answers: { b: 'NaN' },
      fails: { code: 'OUTPUT_NOT_FINITE', message: /^b gave .* no other worker could run it/ },
    },
    {
      what: 'where all differ nobody is blamed',
      answers: { b: 'NaN', a: 'Infinity' },
      fails: { code: 'OUTPUT_NOT_FINITE', message: /^b, a gave different values/ },
    },
    {
      what: 'who cannot run it is no witness, and the next one is asked',
      answers: { b: 'NaN', a: 'PACK_CORRUPT', c: null },
      taken: '3 c again',
      distrusted: ['b'],
    },
    {
      what: 'who is lost while it is asked is no witness',
      answers: { b: 'NaN', a: 'WORKER_LOST', c: null },
      taken: '3 c again',
      distrusted: ['b'],
    },
    {
      what: 'where nobody else can run it nobody is blamed',
      answers: { b: 'NaN', a: 'PACK_CORRUPT' },
      fails: { code: 'OUTPUT_NOT_FINITE', message: /no other worker could run it/ },
    },
  ];
  for (const { what, answers, taken, fails, distrusted = [] } of lies) {
    it(`values that are no numbers: ${what}`, async () => {
      const cluster = new ScriptedCluster(Object.keys(answers).sort(), (id) => answers[id] ?? null);
      if (fails === undefined) assert.deepEqual(await outcomes(cluster, share('b')), [taken]);
      else await assert.rejects(outcomes(cluster, share('b')), fails);
      assert.deepEqual(
        cluster.distrusted.map((text) => text.split(':')[0]),
        distrusted,
      );
      for (const why of cluster.distrusted) assert.match(why, /expert 3 of layer 0 .* no finite numbers/);
    });
  }

  it('takes other outputs of a worker that sent non-finite values as they come', async () => {
    const cluster = new ScriptedCluster(['a', 'b'], (id, _, expert) => (id === 'b' && expert === 5 ? 'NaN' : null));
    assert.deepEqual(await outcomes(cluster, share('b', [3, 5])), ['3 b', '5 a again']);
    assert.deepEqual(cluster.sent.at(-1)?.experts, [{ expert: 5, rows: [], last: true }], 'the same rows again');
    assert.deepEqual([...(cluster.sent.at(-1)?.hidden ?? [])], new Array(8).fill(1));
  });
});
