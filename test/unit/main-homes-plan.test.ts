import assert from 'node:assert/strict';
import { BETWEEN_CHANGES_MS, PLAN_LIMIT_MS } from '../../main-node/cluster/homes-plan.js';
import { JOIN_BATCH_MS, Roster } from '../../main-node/cluster/roster.js';
import { COHORT_WAIT_MS } from '../../main-node/cluster/fetching-workers.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import { LEAST_EXECUTIONS, LEAST_STATUSES } from '../../main-node/cluster/worker-speeds.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { NodeStatus, Placement, Prospect, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { plainIdentity } from './plain-identity.js';
import { GROUPING } from './plain-shape.js';
import { onVirtualClock } from './virtual-run.js';
import { silentLog } from './worker-test-slots.js';

const never = new AbortController().signal;
const STATUS_MS = 1000;

interface Member {
  link: WorkerLink;
  stream: MemoryStream<WorkerRequest, WorkerReply>;
}

/** A roster with strict homes, whose workers fetch their experts. */
class Setting {
  readonly roster: Roster;
  private executions = 0;

  constructor(private readonly runtime: VirtualRuntime) {
    const shape = { expertLayers: 4, experts: 8, expertsPerToken: 2 };
    this.roster = new Roster(shape, { ...GROUPING, homes: 1 }, 100, runtime, silentLog);
  }

  worker(id: string, partialPack = true): Member {
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    const settings = { hiddenSize: 4, experts: 8, executeTimeoutMs: 1000, runtime: this.runtime };
    const link = new WorkerLink(plainIdentity({ id }), `${id}:1`, stream, settings, silentLog, partialPack);
    this.roster.addWorker(link);
    return { link, stream };
  }

  tell({ link }: Member, status: Partial<NodeStatus>): void {
    this.executions += LEAST_EXECUTIONS;
    link.receive({
      kind: 'status',
      status: { ...emptyNodeStatus(link.identity), executions: this.executions, ...status },
    });
    this.roster.workerReported(link);
  }

  /** The worker has fetched all that its latest prospect needs. */
  ready(member: Member, status: Partial<NodeStatus> = {}): void {
    this.tell(member, { ...status, fetchReadyFor: latestOf(member).number });
  }

  async pass(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.runtime.after(ms, resolve);
    });
  }

  get shares(): number[] {
    return sharesOf(this.roster.placement ?? assert.fail('no placement'));
  }

  /** Two workers are placed; the second one takes three times as long. The last status is the one that plans homes by speed. */
  async unequal(): Promise<[Member, Member]> {
    const [a, b] = [this.worker('a'), this.worker('b')];
    for (const member of [a, b]) this.ready(member);
    await this.roster.waitForPlacement(1000, never);
    const number = latestOf(b).number;
    for (let status = 0; status < LEAST_STATUSES; status += 1) {
      this.tell(a, { shortExecuteMsMean: 1, fetchReadyFor: latestOf(a).number });
      this.tell(b, { shortExecuteMsMean: 3, fetchReadyFor: number });
      await this.pass(STATUS_MS);
    }
    assert.deepEqual(this.shares, [0, 0], 'workers have not what other homes need');
    assert.deepEqual(sharesOf(latestOf(a).placement), [24, 8]);
    return [a, b];
  }
}

function latestOf({ stream, link }: Member): Prospect {
  const prospects = stream.sent.flatMap((message) => (message.kind === 'prospect' ? [message.prospect] : []));
  return prospects.at(-1) ?? assert.fail(`nothing was announced to ${link.id}`);
}

const sharesOf = ({ workers }: Placement): number[] => workers.map(({ homeShare = 0 }) => homeShare);

const onSetting = (body: (setting: Setting) => Promise<void>) => (): Promise<void> =>
  onVirtualClock(async (runtime) => {
    const setting = new Setting(runtime);
    try {
      await body(setting);
    } finally {
      setting.roster.stop();
    }
  });

describe('main: workers with strict homes that cache nothing', () => {
  it(
    'are problems, and others, or those that have sent no status yet, are none',
    onSetting(async (setting) => {
      const [silent, forgetful, good] = ['silent', 'forgetful', 'good'].map((id) => setting.worker(id, false));
      assert.ok(silent !== undefined && forgetful !== undefined && good !== undefined);
      const cache = {
        policy: 'lru',
        bytes: 1000,
        capacities: NO_CAPACITIES,
        kept: NO_CAPACITIES,
        hits: NO_CAPACITIES,
        misses: 0,
        packed: 0,
      };
      setting.tell(forgetful, { cache: null });
      setting.tell(good, { cache });
      await setting.roster.waitForPlacement(1000, never);
      const problems = setting.roster.problems();
      assert.deepEqual(
        problems.map(({ id, code }) => [id, code]),
        [['forgetful', 'CONFIG_INVALID']],
      );
      assert.match(problems[0]?.message ?? '', /start it with --homes strict/);
    }),
  );
});

const A = { shortExecuteMsMean: 1 };
const B = { shortExecuteMsMean: 3 };

describe('main: planned homes', () => {
  it(
    'are published as soon as all workers have fetched what they need, and no sooner',
    onSetting(async (setting) => {
      const [a, b] = await setting.unequal();
      setting.ready(a, A);
      assert.deepEqual(setting.shares, [0, 0], 'b fetches still');
      setting.tell(b, { ...B, fetchReadyFor: latestOf(b).number - 1 });
      assert.deepEqual(setting.shares, [0, 0], 'b had what the homes before needed');
      setting.ready(b, B);
      assert.deepEqual(setting.shares, [24, 8]);
    }),
  );

  it(
    'are published at once where every worker has the whole pack',
    onSetting(async (setting) => {
      const [a, b] = [setting.worker('a', false), setting.worker('b', false)];
      await setting.roster.waitForPlacement(1000, never);
      for (let status = 0; status < LEAST_STATUSES; status += 1) {
        setting.tell(a, A);
        setting.tell(b, B);
      }
      assert.deepEqual(setting.shares, [24, 8]);
    }),
  );

  it(
    'are published by no other change of the placement, which drops them',
    onSetting(async (setting) => {
      const [a, b] = await setting.unequal();
      setting.roster.goAbove(500, 'a');
      assert.deepEqual(setting.shares, [0, 0]);
      assert.deepEqual(sharesOf(latestOf(a).placement), [0, 0], 'a is told that the present homes stay');
      setting.ready(a, A);
      assert.deepEqual(sharesOf(latestOf(a).placement), [24, 8], 'they are planned anew');
      setting.ready(a, A);
      setting.ready(b, B);
      assert.deepEqual(setting.shares, [24, 8]);
    }),
  );

  it(
    'are dropped when another worker begins to fetch, which has what the present homes need',
    onSetting(async (setting) => {
      const [a, b] = await setting.unequal();
      const c = setting.worker('c');
      assert.deepEqual(sharesOf(latestOf(c).placement), [0, 0, 0]);
      setting.ready(a, A);
      setting.ready(b, B);
      assert.deepEqual(setting.shares, [0, 0]);
      assert.deepEqual(sharesOf(latestOf(b).placement), [0, 0, 0], 'b fetches beside c');
      setting.ready(c);
      await setting.pass(2 * JOIN_BATCH_MS);
      assert.deepEqual(setting.shares, [0, 0, 0]);
    }),
  );

  it(
    'are made beside a worker that is late, which fetches for the present homes',
    onSetting(async (setting) => {
      const [a, b] = await setting.unequal();
      const [slow, quick] = [setting.worker('slow'), setting.worker('x')];
      setting.ready(quick);
      await setting.pass(2 * COHORT_WAIT_MS);
      setting.ready(quick);
      await setting.pass(2 * JOIN_BATCH_MS);
      assert.deepEqual(setting.shares, [0, 0, 0], 'x is placed');
      for (let status = 0; status < LEAST_STATUSES; status += 1) setting.ready(quick, A);
      setting.ready(a, A);
      setting.ready(b, B);
      assert.deepEqual(sharesOf(latestOf(b).placement), [24, 8, 24]);
      assert.deepEqual(sharesOf(latestOf(slow).placement), [0, 0, 0, 0]);
      setting.ready(slow);
      await setting.pass(2 * JOIN_BATCH_MS);
      assert.deepEqual(setting.shares, [0, 0, 0, 0]);
    }),
  );

  it(
    'are made beside a lone worker whose fetch takes days, once it is here for a while',
    onSetting(async (setting) => {
      const [a, b] = await setting.unequal();
      const slow = setting.worker('slow');
      setting.ready(a, A);
      setting.ready(b, B);
      assert.deepEqual(setting.shares, [0, 0], 'it might be placed soon');
      await setting.pass(COHORT_WAIT_MS);
      setting.ready(a, A);
      setting.ready(a, A);
      setting.ready(b, B);
      assert.deepEqual(setting.shares, [24, 8]);
      assert.deepEqual(sharesOf(latestOf(slow).placement), [24, 8, 16]);
      setting.ready(slow);
      await setting.pass(2 * JOIN_BATCH_MS);
      assert.deepEqual(setting.shares, [24, 8, 16]);
    }),
  );

  it(
    'are given up after a while, and planned again after another',
    onSetting(async (setting) => {
      const [a, b] = await setting.unequal();
      await setting.pass(PLAN_LIMIT_MS - (LEAST_STATUSES + 1) * STATUS_MS);
      setting.ready(a, A);
      assert.deepEqual(sharesOf(latestOf(b).placement), [24, 8], 'there is time left');
      await setting.pass((LEAST_STATUSES + 1) * STATUS_MS);
      setting.ready(a, A);
      assert.deepEqual(sharesOf(latestOf(b).placement), [0, 0]);
      setting.ready(a, A);
      setting.ready(b, B);
      assert.deepEqual(setting.shares, [0, 0]);
      await setting.pass(PLAN_LIMIT_MS);
      for (const [member, status] of [
        [a, A],
        [b, B],
        [a, A],
        [b, B],
      ] as const)
        setting.ready(member, status);
      assert.deepEqual(setting.shares, [24, 8]);
      for (let status = 0; status < 20; status += 1) for (const member of [a, b]) setting.ready(member, A);
      assert.deepEqual(setting.shares, [24, 8], 'it is too soon for a third change');
      await setting.pass(BETWEEN_CHANGES_MS);
      setting.ready(a, A);
      setting.ready(a, A);
      setting.ready(b, A);
      assert.deepEqual(setting.shares, [24, 21]);
    }),
  );
});
