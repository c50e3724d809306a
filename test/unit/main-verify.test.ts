import assert from 'node:assert/strict';
import type { ExecuteWork, PlacedWorkers, WorkerOrders } from '../../main-node/cluster/placed-workers.js';
import type { ExpertOutcome } from '../../main-node/pass/expert-dispatcher.js';
import type { LayerStep } from '../../main-node/pass/expert-work.js';
import {
  ExecutionChecks,
  type ExecutionCheckOptions,
  LEAST_PAUSE_MS,
  MAX_WAITING_BYTES,
  MAX_WAITING_CHECKS,
  MOST_PAUSE_MS,
} from '../../main-node/verify/execution-checks.js';
import { judgeCheck, type CheckOpinion } from '../../main-node/verify/judge-check.js';
import { obstacleOf, secondWorkers } from '../../main-node/verify/second-workers.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { strictHomesOf } from '../../shared/decisions/placement/strict-homes.js';
import { NO_TIMES, type ExpertResult, type Placement } from '../../shared/wire/messages.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { TestLog } from '../integration/harness/test-log.js';
import { onVirtualClock } from './virtual-run.js';

const NAN = 0x7fc00000;
const valuesOf = (...bits: number[]): Uint8Array => new Uint8Array(Uint32Array.from(bits).buffer);
const RIGHT = valuesOf(0x3f800000, 0x40000000);
const WRONG = valuesOf(0x3f800001, 0x40000000);
const OTHER = valuesOf(0x3f800002, 0x40000000);

const plan = (workers: number, more: Partial<Parameters<typeof planPlacement>[0]> = {}): Placement =>
  planPlacement({
    epoch: 7,
    workers: Array.from({ length: workers }, (_, index) => ({ id: `w${index}`, address: `w${index}:1`, slots: 1 })),
    layers: 4,
    experts: 8,
    expertsPerToken: 2,
    groupSize: 2,
    ...more,
  });

describe('main: opinions on a checked execution', () => {
  const opinion = (workerId: string, output: Uint8Array, isMains = false): CheckOpinion => ({
    workerId,
    output,
    isMains,
  });
  const judged = (...opinions: CheckOpinion[]): string => {
    const { kind, liars } = judgeCheck(opinions);
    return liars.length === 0 ? kind : `${kind}: ${liars.map(({ workerId }) => workerId).join()}`;
  };

  it('agree to the bit, or leave it open who lied', () => {
    assert.equal(judged(opinion('a', RIGHT)), 'open');
    assert.equal(judged(opinion('a', RIGHT), opinion('b', RIGHT.slice())), 'agreed');
    assert.equal(judged(opinion('a', RIGHT), opinion('b', WRONG)), 'open');
    assert.equal(judged(opinion('a', RIGHT), opinion('b', WRONG), opinion('c', OTHER)), 'open');
  });

  it('are decided by two that are the same, whichever was asked first', () => {
    assert.equal(judged(opinion('a', WRONG), opinion('b', RIGHT), opinion('c', RIGHT)), 'lies: a');
    assert.equal(judged(opinion('a', RIGHT), opinion('b', WRONG), opinion('c', RIGHT)), 'lies: b');
    const four = [opinion('a', RIGHT), opinion('b', WRONG), opinion('c', OTHER), opinion('d', RIGHT)];
    assert.equal(judged(...four), 'lies: b,c');
  });

  it("are decided by main's own values, also against two that lie together", () => {
    assert.equal(judged(opinion('a', WRONG), opinion('b', RIGHT, true)), 'lies: a');
    assert.equal(judged(opinion('a', WRONG), opinion('b', WRONG), opinion('main', RIGHT, true)), 'lies: a,b');
  });

  it('that are no finite numbers are wrong where another one is finite', () => {
    assert.equal(judged(opinion('a', RIGHT), opinion('b', valuesOf(NAN, NAN))), 'lies: b');
    assert.equal(judged(opinion('a', RIGHT), opinion('main', valuesOf(NAN, NAN), true)), 'lies: main');
    const open = [opinion('a', RIGHT), opinion('b', WRONG), opinion('c', valuesOf(NAN, NAN))];
    assert.equal(judged(...open), 'open: c', 'they decide nothing between others');
    assert.equal(judged(...open, opinion('main', RIGHT, true)), 'lies: b,c');
    assert.equal(judged(opinion('a', valuesOf(NAN)), opinion('b', valuesOf(NAN + 1))), 'agreed');
  });
});

describe('main: workers that can check an execution', () => {
  const expert = { layer: 1, expert: 3 };

  it('are the others to which the placement gives the expert', () => {
    assert.deepEqual(secondWorkers(plan(4), expert, 'w2'), ['w3']);
    assert.deepEqual(secondWorkers(plan(3, { spread: true }), expert, 'w0'), ['w1', 'w2']);
    const strict = plan(4, { homes: 2 });
    const [first = '', second = ''] = strictHomesOf(strict, 1, 3);
    assert.deepEqual(secondWorkers(strict, expert, first), [second]);
    assert.deepEqual(
      secondWorkers(plan(4, { homes: 1 }), expert, strictHomesOf(plan(4, { homes: 1 }), 1, 3)[0] ?? ''),
      [],
    );
  });

  it('are missing for a reason that has words', () => {
    assert.match(obstacleOf(null), /no worker/);
    assert.match(obstacleOf(plan(1)), /only one worker/);
    assert.match(obstacleOf(plan(4, { homes: 1 })), /placement.replicas to 2/);
    assert.match(obstacleOf(plan(4, { groupSize: 1 })), /each group has one worker/);
    for (const placement of [plan(4), plan(4, { homes: 2 }), plan(4, { groupSize: 1, spread: true })])
      assert.equal(obstacleOf(placement), '');
  });
});

/** Workers that give for any execute the output that they are scripted to give, or an error. */
class ScriptedWorkers implements Pick<PlacedWorkers, 'placement' | 'worker' | 'distrust'> {
  readonly asked: { id: string; work: ExecuteWork; atMs: number }[] = [];
  readonly ends: [id: string, sequence: number, atMs: number][] = [];
  readonly distrusted: string[] = [];
  private readonly links = new Map<string, WorkerOrders>();
  placement: Placement | null;

  constructor(
    private readonly runtime: VirtualRuntime,
    private readonly outputs: Readonly<Record<string, Uint8Array | 'fails'>>,
    private readonly cached: (id: string) => boolean,
  ) {
    const ids = Object.keys(outputs);
    this.placement = plan(ids.length, { groupSize: ids.length });
    for (const id of ids) this.links.set(id, this.linkOf(id));
  }

  worker(id: string): WorkerOrders | null {
    return this.links.get(id) ?? null;
  }

  distrust(worker: WorkerOrders): void {
    const [id] = [...this.links].find(([, link]) => link === worker) ?? ['?'];
    this.distrusted.push(id);
  }

  private linkOf(id: string): WorkerOrders {
    const nothing = (): void => assert.fail('checks announce and release nothing');
    return {
      cached: { has: () => this.cached(id) } as never,
      execute: async (work, epoch, onPartialResult) => {
        assert.equal(epoch, 7);
        this.asked.push({ id, work, atMs: this.runtime.nowMs() });
        await this.runtime.sleep(1);
        const output = this.outputs[id];
        if (output === undefined || output === 'fails') throw new Error('scripted: it fails');
        onPartialResult([resultOf(output)]);
      },
      sendAnnounce: nothing,
      sendRelease: nothing,
      sendEnd: (sequence) => void this.ends.push([id, sequence, this.runtime.nowMs()]),
    };
  }
}

const resultOf = (output: Uint8Array): ExpertResult => ({
  expert: 3,
  rows: 1,
  wasLoaded: true,
  stallUs: 0,
  executeUs: 0,
  ...NO_TIMES,
  output,
  failure: null,
});

/** A pass of two rows of 8 bytes. The expert ran for the second one. */
const STEP: LayerStep = {
  pass: { sequence: 1, position: 4 },
  rows: [
    { sequence: 1, position: 4, rows: 1 },
    { sequence: 2, position: 9, rows: 1 },
  ],
  layer: 1,
  hidden: Uint8Array.from({ length: 16 }, (_, index) => index),
  outputs: new Uint8Array(32),
};

const outcomeOf = (workerId: string, output: Uint8Array): ExpertOutcome => ({
  work: { layer: 1, expert: 3, rows: [{ row: 1, rank: 1 }], last: false },
  workerId,
  result: resultOf(output),
  resent: false,
});

describe('main: executions that are run again', () => {
  interface Tried {
    checks: ExecutionChecks;
    workers: ScriptedWorkers;
    runtime: VirtualRuntime;
    log: TestLog;
  }

  const tried = (
    outputs: Readonly<Record<string, Uint8Array | 'fails'>>,
    run: (tried: Tried) => Promise<void>,
    { cached = () => true, ...options }: Partial<ExecutionCheckOptions> & { cached?: (id: string) => boolean } = {},
  ): Promise<void> =>
    onVirtualClock(async (runtime) => {
      const workers = new ScriptedWorkers(runtime, outputs, cached);
      const log = new TestLog();
      let sequence = 100;
      const checks = new ExecutionChecks({
        share: 1,
        workers: workers as unknown as PlacedWorkers,
        ownWorkerId: '',
        isIdle: () => false,
        nextSequence: () => sequence++,
        runOnMain: () => Promise.reject(new Error('main has no memory')),
        runtime,
        log: log.logger('main'),
        ...options,
      });
      try {
        await run({ checks, workers, runtime, log });
      } finally {
        await checks.stop();
      }
      assert.equal(checks.openCount, 0);
    });

  it('go to another worker later, under numbers of their own, with only the rows that the expert had', () =>
    tried({ w0: RIGHT, w1: RIGHT }, async ({ checks, workers, runtime }) => {
      const step = { ...STEP, hidden: STEP.hidden.slice() };
      checks.ran(step, outcomeOf('w0', RIGHT.slice()));
      step.hidden.fill(0);
      assert.equal(workers.asked.length, 0, 'no pass waits for it');
      await runtime.sleep(2 * MOST_PAUSE_MS + 2);
      const [asked] = workers.asked;
      assert.equal(asked?.id, 'w1');
      assert.ok((asked?.atMs ?? 0) >= LEAST_PAUSE_MS);
      assert.deepEqual(asked?.work, {
        pass: { sequence: 100, position: 9 },
        rows: [{ sequence: 100, position: 9, rows: 1 }],
        layer: 1,
        hidden: STEP.hidden.slice(8),
        experts: [{ expert: 3, rows: [], last: true }],
      });
      const [end] = workers.ends;
      assert.deepEqual(end?.slice(0, 2), ['w1', 100]);
      assert.ok((end?.[2] ?? 0) >= (asked?.atMs ?? 0) + LEAST_PAUSE_MS, 'it does not end with its execute');
      assert.deepEqual([checks.status.agreed, workers.distrusted], [1, []]);
    }));

  it('are decided by a third worker where main cannot', () =>
    tried({ w0: WRONG, w1: RIGHT, w2: RIGHT }, async ({ checks, workers, runtime, log }) => {
      checks.ran(STEP, outcomeOf('w0', WRONG));
      await runtime.sleep(2 * MOST_PAUSE_MS);
      assert.deepEqual([workers.distrusted, checks.status.differed, checks.problems()], [['w0'], 1, []]);
      assert.equal(log.matching('"sequences":[2]').length, 1, 'the answers that used the output are named');
    }));

  it("are decided by main's own device before any third worker is asked", () =>
    tried(
      { w0: WRONG, w1: RIGHT, w2: RIGHT },
      async ({ checks, workers, runtime }) => {
        checks.ran(STEP, outcomeOf('w0', WRONG));
        await runtime.sleep(2 * MOST_PAUSE_MS);
        assert.deepEqual([workers.distrusted, workers.asked.length], [['w0'], 1]);
      },
      { runOnMain: () => Promise.resolve(RIGHT) },
    ));

  it('that nobody can decide blame nobody, and are a problem of both workers', () =>
    tried({ w0: WRONG, w1: RIGHT, w2: 'fails' }, async ({ checks, workers, runtime }) => {
      // Which of the others is asked first is drawn.
      while (checks.status.differed === 0) {
        checks.ran(STEP, outcomeOf('w0', WRONG));
        await runtime.sleep(2 * MOST_PAUSE_MS);
      }
      assert.deepEqual(workers.distrusted, []);
      const problems = checks.problems().map(({ id, code }) => `${id} ${code}`);
      assert.deepEqual([...new Set(problems)].sort(), ['w0 WORKERS_DISAGREE', 'w1 WORKERS_DISAGREE']);
    }));

  it('wait, where a worker would have to load the expert, until main has no sequence', async () => {
    let idle = false;
    await tried(
      { w0: RIGHT, w1: RIGHT },
      async ({ checks, workers, runtime }) => {
        checks.ran(STEP, outcomeOf('w0', RIGHT));
        await runtime.sleep(10 * MOST_PAUSE_MS);
        assert.deepEqual([workers.asked.length, checks.openCount], [0, 1]);
        idle = true;
        await runtime.sleep(2 * MOST_PAUSE_MS);
        assert.equal(checks.status.agreed, 1);
      },
      { cached: () => false, isIdle: () => idle },
    );
  });

  it('are bounded: those that are too many, or get no result, are counted', () =>
    tried({ w0: RIGHT, w1: 'fails' }, async ({ checks, workers, runtime }) => {
      for (let more = 0; more < MAX_WAITING_CHECKS + 5; more++) checks.ran(STEP, outcomeOf('w0', RIGHT));
      assert.deepEqual([checks.openCount, checks.status.dropped], [MAX_WAITING_CHECKS, 5]);
      await runtime.sleep(20 * MOST_PAUSE_MS);
      const { dropped, open } = checks.status;
      assert.deepEqual([dropped, open, workers.distrusted], [MAX_WAITING_CHECKS + 5, 0, []]);
    }));

  it('keep the checks that wait when one is larger than all may be', () =>
    tried({ w0: RIGHT, w1: RIGHT }, async ({ checks }) => {
      checks.ran(STEP, outcomeOf('w0', RIGHT));
      checks.ran(STEP, outcomeOf('w0', new Uint8Array(MAX_WAITING_BYTES)));
      assert.deepEqual([checks.openCount, checks.status.dropped], [1, 1]);
    }));

  it('are drawn with the probability that was set', () =>
    tried(
      { w0: RIGHT, w1: RIGHT },
      async ({ checks }) => {
        for (let executions = 0; executions < 1000; executions++) checks.ran(STEP, outcomeOf('w0', RIGHT));
        const drawn = checks.openCount + checks.status.dropped;
        assert.ok(drawn > 60 && drawn < 140, `${drawn} of 1000`);
      },
      { share: 0.1 },
    ));

  it('have no second worker where the expert has one: they are counted, and the log says so once', () =>
    tried({ w0: RIGHT }, async ({ checks, log }) => {
      for (let times = 0; times < 2; times++) {
        checks.placementChanged();
        checks.ran(STEP, outcomeOf('w0', RIGHT));
      }
      assert.deepEqual([checks.status.impossible, checks.openCount], [2, 0]);
      assert.match(checks.status.obstacle, /only one worker/);
      assert.equal(log.matching('cannot be compared').length, 1);
    }));
});
