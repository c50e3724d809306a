import assert from 'node:assert/strict';
import fc from 'fast-check';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { gainOfShares, sharesBySpeed, type MeasuredSpeed } from '../../main-node/cluster/shares-by-speed.js';
import {
  BETWEEN_CHANGES_MS,
  GREATEST_PLAN_LIMIT_MS,
  HomesPlan,
  PLAN_LIMIT_MS,
} from '../../main-node/cluster/homes-plan.js';
import { LEAST_EXECUTIONS, LEAST_STATUSES } from '../../main-node/cluster/worker-speeds.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import { silentLog } from './worker-test-slots.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { RUNTIME } from '../wall.js';
import { plainIdentity } from './plain-identity.js';
import { strictHomesOf } from '../../shared/decisions/placement/strict-homes.js';
import { MOST_SHARE } from '../../shared/wire/limits.js';
import type { Placement } from '../../shared/wire/messages.js';

const HOMES = 48 * 128;
const LAYERS = 48;

const speed = (executeMs: number, loadMs = 0, cached = 0): MeasuredSpeed => ({ executeMs, loadMs, cached });
const sharesOf = (speeds: readonly (MeasuredSpeed | null)[], homes = HOMES): number[] => [
  ...sharesBySpeed(new Map(speeds.map((one, index) => [`box-${index}`, one])), homes).values(),
];

function place(shares: readonly number[], experts: number, homes = 1): Placement {
  const workers = shares.map((homeShare, index) => ({ id: `box-${index}`, address: '', slots: 1, homeShare }));
  return planPlacement({ epoch: 1, layers: LAYERS, experts, expertsPerToken: 2, groupSize: 'auto', homes, workers });
}

/** Number of experts that have their first home at each worker. */
function firstHomes(placement: Placement): number[] {
  const held = new Map(placement.workers.map(({ id }) => [id, 0]));
  for (let layer = 0; layer < LAYERS; layer += 1)
    for (let expert = 0; expert < placement.experts; expert += 1) {
      const [id = ''] = strictHomesOf(placement, layer, expert);
      held.set(id, (held.get(id) ?? 0) + 1);
    }
  return [...held.values()];
}

const SPEEDS = fc.record({
  executeMs: fc.double({ noNaN: true, min: 0, max: 1e9 }),
  loadMs: fc.double({ noNaN: true, min: 0, max: 1e9 }),
  cached: fc.nat(1e6),
});

describe('main: shares of strict homes by speed', () => {
  it('are in proportion to the speed', () => {
    assert.deepEqual(sharesOf([speed(1), speed(3)]), [24, 8]);
    assert.deepEqual(sharesOf([speed(2), speed(2), speed(1)]), [12, 12, 24]);
    assert.deepEqual(sharesOf([speed(7), speed(7)]), [24, 24]);
  });

  it('count loads of experts that no cache holds, and none of those that one holds', () => {
    assert.deepEqual(sharesOf([speed(1, 2), speed(1, 5)]), [24, 12]);
    assert.deepEqual(sharesOf([speed(1, 2, HOMES), speed(1, 5, HOMES)]), [24, 24]);
    // The first holds 1,000 experts. Both need 5,500 ms for all that they have: 1,000 + 4,500 / 9 experts, and 5,500.
    assert.deepEqual(sharesOf([speed(1, 8, 1000), speed(1, 8, HOMES)], 7000), [Math.round((24 * 1500) / 5500), 24]);
  });

  it('give a worker that is not measured the mean share', () => {
    assert.deepEqual(sharesOf([speed(1), null, speed(3)]), [24, 16, 8]);
    assert.deepEqual(sharesOf([null, null]), [1, 1]);
    assert.deepEqual(sharesOf([]), []);
  });

  it('are whole and bounded, whatever peers report, and do not depend on the order', () => {
    fc.assert(
      fc.property(
        fc.array(SPEEDS, { minLength: 1, maxLength: 8 }),
        fc.integer({ min: 1, max: 1e5 }),
        (speeds, homes) => {
          const shares = sharesOf(speeds, homes);
          for (const share of shares)
            assert.ok(Number.isInteger(share) && share >= 1 && share <= MOST_SHARE, `${share}`);
          assert.equal(Math.max(...shares), MOST_SHARE);
          const twins = sharesOf([...speeds, ...speeds], 2 * homes);
          assert.deepEqual(twins, [...shares, ...shares]);
        },
      ),
    );
  });

  it('are never much slower than equal ones', () => {
    const measured = fc.record({
      executeMs: fc.double({ noNaN: true, min: 0.1, max: 2 }),
      loadMs: fc.double({ noNaN: true, min: 0, max: 20 }),
      cached: fc.nat(HOMES),
    });
    fc.assert(
      fc.property(fc.array(measured, { minLength: 2, maxLength: 6 }), (all) => {
        const speeds = new Map(all.map((one, index) => [`box-${index}`, one]));
        const equal = new Map([...speeds.keys()].map((id) => [id, 1]));
        // A share is rounded to a whole number: the least one, 1, may stand for less.
        const gain = gainOfShares(speeds, HOMES, equal, sharesBySpeed(speeds, HOMES));
        assert.ok(gain > 0.8, `${gain}`);
      }),
    );
  });

  it('say how much faster the slowest worker is done', () => {
    const speeds = new Map([
      ['a', speed(1)],
      ['b', speed(3)],
    ]);
    const equal = new Map([
      ['a', 1],
      ['b', 1],
    ]);
    assert.equal(gainOfShares(speeds, 400, equal, sharesBySpeed(speeds, 400)), 2);
    assert.equal(gainOfShares(speeds, 400, equal, equal), 1);
  });
});

describe('placement: strict homes with shares', () => {
  it('are in proportion to them', () => {
    for (const [shares, experts] of [
      [[24, 8], 128],
      [[24, 12, 6], 60],
      [[24, 1], 8],
      [[24, 8, 8, 8], 8],
    ] as const) {
      const all = shares.reduce((sum: number, share) => sum + share, 0);
      firstHomes(place(shares, experts)).forEach((held, index) => {
        const due = ((shares[index] ?? 0) / all) * experts * LAYERS;
        const tolerance = Math.max(LAYERS, 4 * Math.sqrt(due));
        assert.ok(Math.abs(held - due) <= tolerance, `${shares.join()}: ${index} has ${held} of ${due}`);
      });
    }
  });

  it('are where they are without shares if all are equal', () => {
    const [none, one, most] = [0, 1, MOST_SHARE].map((share) => place([share, share, share], 40, 2));
    for (let layer = 0; layer < LAYERS; layer += 1)
      for (let expert = 0; expert < 40; expert += 1) {
        const homes = strictHomesOf(none as Placement, layer, expert);
        assert.deepEqual(strictHomesOf(one as Placement, layer, expert), homes);
        assert.deepEqual(strictHomesOf(most as Placement, layer, expert), homes);
      }
  });

  it('move little when a share changes', () => {
    for (const [before, after, due] of [
      [[24, 24, 24], [24, 24, 22], 0.025],
      [[1, 1], [24, 8], 0.25],
      [[24, 24, 24, 24], [24, 24, 24, 12], 0.11],
    ] as const) {
      const [from, to] = [place(before, 128), place(after, 128)];
      let moved = 0;
      for (let layer = 0; layer < LAYERS; layer += 1)
        for (let expert = 0; expert < 128; expert += 1)
          if (strictHomesOf(from, layer, expert)[0] !== strictHomesOf(to, layer, expert)[0]) moved += 1;
      const share = moved / (LAYERS * 128);
      assert.ok(share <= 2 * due + 0.05, `${before.join()} to ${after.join()}: ${share} of all move`);
    }
  });

  it('give each expert all its homes, each once', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: MOST_SHARE }), { minLength: 1, maxLength: 6 }),
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 1, max: 2 }),
        (shares, experts, homes) => {
          const placement = place(shares, experts, homes);
          for (let expert = 0; expert < experts; expert += 1) {
            const own = strictHomesOf(placement, 3, expert);
            assert.equal(new Set(own).size, Math.min(homes, shares.length));
            assert.equal(own.length, new Set(own).size);
          }
        },
      ),
    );
  });
});

describe('main: when shares change', () => {
  let nowMs = 0;
  let homes: HomesPlan;
  let links: WorkerLink[];

  const worker = (id: string): WorkerLink => {
    const settings = { hiddenSize: 4, experts: 100, executeTimeoutMs: 1000, runtime: RUNTIME };
    return new WorkerLink(plainIdentity({ id }), `${id}:1`, new MemoryStream(), settings, silentLog);
  };
  const report = (link: WorkerLink, shortExecuteMsMean: number, times = LEAST_STATUSES): void => {
    for (let status = 0; status < times; status += 1) {
      const executions = (link.status?.executions ?? 0) + LEAST_EXECUTIONS;
      const reported = { ...emptyNodeStatus(link.identity), executions, shortExecuteMsMean };
      link.receive({ kind: 'status', status: reported });
      homes.reported(link);
    }
  };
  const placement = place([0, 0], 8);
  const plan = (): boolean => homes.plan(links, placement);
  const sharesOf = (which: 'planned' | 'present'): number[] =>
    [...homes.of(links, which).values()].map(({ homeShare }) => homeShare);

  beforeEach(() => {
    nowMs = 0;
    homes = new HomesPlan(HOMES, null, () => nowMs);
    links = [worker('a'), worker('b')];
  });

  it('they are equal until each worker is measured', () => {
    const [a, b] = links as [WorkerLink, WorkerLink];
    report(a, 1);
    report(b, 3, LEAST_STATUSES - 1);
    assert.equal(plan(), false);
    assert.deepEqual(sharesOf('planned'), [0, 0]);
    report(b, 3, 1);
    assert.equal(plan(), true);
    assert.deepEqual(sharesOf('planned'), [24, 8]);
    assert.deepEqual(sharesOf('present'), [0, 0]);
  });

  it('a status without new executions tells nothing', () => {
    const [a, b] = links as [WorkerLink, WorkerLink];
    report(a, 1);
    report(b, 3, 1);
    for (let status = 0; status < 9; status += 1) homes.reported(b);
    assert.equal(plan(), false);
  });

  it('small differences change nothing, and great ones not at once again', () => {
    const [a, b] = links as [WorkerLink, WorkerLink];
    report(a, 1);
    report(b, 1.2);
    assert.equal(plan(), false);
    report(b, 3, 20);
    assert.equal(plan(), true);
    assert.equal(plan(), false, 'they are planned already');
    homes.takePlan();
    report(b, 1, 20);
    nowMs = BETWEEN_CHANGES_MS - 1;
    assert.equal(plan(), false);
    nowMs = BETWEEN_CHANGES_MS;
    assert.equal(plan(), true);
  });

  it('a plan that is dropped may be made again at once, and one that took too long only after a while', () => {
    const [a, b] = links as [WorkerLink, WorkerLink];
    report(a, 1);
    report(b, 3);
    assert.equal(homes.dropPlan(), false, 'there is none');
    assert.equal(plan(), true);
    assert.equal(homes.dropPlan(), true);
    assert.deepEqual(sharesOf('planned'), [0, 0]);
    assert.equal(plan(), true);
    nowMs = PLAN_LIMIT_MS - 1;
    assert.equal(homes.isOverdue, false);
    nowMs = PLAN_LIMIT_MS;
    assert.equal(homes.isOverdue, true);
    assert.equal(homes.dropPlan(), true);
    assert.equal(homes.isOverdue, false);
    nowMs = 2 * PLAN_LIMIT_MS - 1;
    assert.equal(plan(), false);
    nowMs = 2 * PLAN_LIMIT_MS;
    assert.equal(plan(), true);
  });

  it('each plan that takes too long after another has twice its time, and twice its pause, up to a day', () => {
    const [a, b] = links as [WorkerLink, WorkerLink];
    report(a, 1);
    report(b, 3);
    const fail = (limitMs: number): void => {
      assert.equal(plan(), true);
      nowMs += limitMs - 1;
      assert.equal(homes.isOverdue, false);
      nowMs += 1;
      assert.equal(homes.isOverdue, true);
      homes.dropPlan();
      nowMs += limitMs - 1;
      assert.equal(plan(), false);
      nowMs += 1;
    };
    for (const factor of [1, 2, 4, 8, 16, 32]) fail(factor * PLAN_LIMIT_MS);
    for (let again = 0; again < 2; again += 1) fail(GREATEST_PLAN_LIMIT_MS);
    assert.equal(plan(), true);
    homes.takePlan();
    report(b, 1, 20);
    nowMs += BETWEEN_CHANGES_MS;
    fail(PLAN_LIMIT_MS);
  });

  it('a worker that comes has the mean share, and there are no shares without strict homes', () => {
    const [a, b] = links as [WorkerLink, WorkerLink];
    report(a, 1);
    report(b, 3);
    plan();
    homes.takePlan();
    links.push(worker('c'));
    assert.deepEqual(sharesOf('present'), [24, 8, 16]);
    const none = new HomesPlan(0, null, () => nowMs);
    for (const link of links) none.reported(link);
    assert.equal(none.plan(links, placement), false);
  });
});
