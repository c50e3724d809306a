import assert from 'node:assert/strict';
import fc from 'fast-check';
import { chooseOwnExperts, ownExpertsCost, type OwnExpertsInput } from '../../main-node/cluster/choose-own-experts.js';
import { ExpertUses } from '../../main-node/cluster/expert-uses.js';
import { OwnExperts, ROOM_KEPT_MS, BETWEEN_LOOKS_MS } from '../../main-node/cluster/own-experts.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import { BETWEEN_CHANGES_MS, HomesPlan, PLAN_LIMIT_MS } from '../../main-node/cluster/homes-plan.js';
import { LEAST_EXECUTIONS, LEAST_STATUSES, WorkerSpeeds } from '../../main-node/cluster/worker-speeds.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { countKept, hasKept, keep, keptBytes } from '../../shared/decisions/placement/kept-experts.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { NEWEST_PROTOCOL } from '../../shared/wire/limits.js';
import type { NodeStatus } from '../../shared/wire/messages.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { RUNTIME } from '../wall.js';
import { plainIdentity } from './plain-identity.js';
import { GROUPING } from './plain-shape.js';
import { silentLog } from './worker-test-slots.js';

const FAST_MAIN = { workers: 2, workersRoom: Infinity, ownMs: 0.01, workerMs: 1, loadMs: 10, reachMs: 0.5 };
const keptIn = (kept: Uint8Array, layers: number, experts: number): number[][] =>
  Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: experts }, (_entry, expert) => expert).filter((expert) =>
      hasKept(kept, experts, layer, expert),
    ),
  );

const inputs = fc
  .record({
    layers: fc.integer({ min: 1, max: 5 }),
    experts: fc.integer({ min: 1, max: 12 }),
    room: fc.integer({ min: 0, max: 80 }),
    workers: fc.integer({ min: 1, max: 4 }),
    workersRoom: fc.integer({ min: 0, max: 80 }),
    ownMs: fc.double({ min: 0.001, max: 10, noNaN: true }),
    workerMs: fc.double({ min: 0.001, max: 10, noNaN: true }),
    loadMs: fc.double({ min: 0, max: 100, noNaN: true }),
    reachMs: fc.double({ min: 0, max: 5, noNaN: true }),
  })
  .chain((rest) =>
    fc
      .array(fc.double({ min: 0, max: 1, noNaN: true }), {
        minLength: rest.layers * rest.experts,
        maxLength: rest.layers * rest.experts,
      })
      .map((uses): OwnExpertsInput => ({ ...rest, uses })),
  );

describe('main: the experts that it keeps', () => {
  it('are those that are used most, over all layers', () => {
    const uses = [0.9, 0.1, 0.5, 0.5, 0.2, 0.9, 0.8, 0.1];
    const input = { ...FAST_MAIN, layers: 2, experts: 4, uses, room: 3 };
    assert.deepEqual(keptIn(chooseOwnExperts(input, null), 2, 4), [[0], [1, 2]]);
  });

  it('are as many of each layer where all are used alike', () => {
    const input = { ...FAST_MAIN, layers: 4, experts: 8, uses: new Array<number>(32).fill(0.25), room: 12 };
    assert.deepEqual(
      keptIn(chooseOwnExperts(input, null), 4, 8).map(({ length }) => length),
      [3, 3, 3, 3],
    );
  });

  it('are no more than main executes in the time of the others', () => {
    const slow = { ...FAST_MAIN, ownMs: 5, workerMs: 1 };
    const input = { ...slow, layers: 1, experts: 8, uses: new Array<number>(8).fill(0.25), room: 8 };
    assert.equal(countKept(chooseOwnExperts(input, null)), 1);
    assert.equal(countKept(chooseOwnExperts({ ...input, ...FAST_MAIN }, null)), 8);
  });

  it('are one at least while there is memory, however slow main is: it would not be measured any more', () => {
    const input = { ...FAST_MAIN, layers: 2, experts: 4, uses: [0.9, 0.9, 0.3, 0.2, 0.9, 0.9, 0.5, 0.6], room: 3 };
    // A layer takes about 2 ms on the workers: main has time for an expert that 0.3, or 0.2, of the tokens use.
    const slow = { ...input, ownMs: 6 };
    assert.deepEqual(keptIn(chooseOwnExperts(slow, null), 2, 4), [[2], []]);
    const none = ownExpertsCost(slow, new Uint8Array(keptBytes(slow)));
    assert.ok(ownExpertsCost(slow, chooseOwnExperts(slow, null)).ms <= none.ms);
    assert.deepEqual(keptIn(chooseOwnExperts({ ...input, ownMs: 1000 }, null), 2, 4), [[3], []]);
    assert.equal(countKept(chooseOwnExperts({ ...input, ownMs: 1000, room: 0 }, null)), 0);
  });

  it('stay where another is used only a little more', () => {
    const input = { ...FAST_MAIN, layers: 1, experts: 4, uses: [0.5, 0.6, 0.4, 0.5], room: 1 };
    const kept = chooseOwnExperts({ ...input, uses: [0.7, 0.6, 0.4, 0.5] }, null);
    assert.deepEqual(keptIn(kept, 1, 4), [[0]]);
    assert.deepEqual(keptIn(chooseOwnExperts(input, kept), 1, 4), [[0]]);
    assert.deepEqual(keptIn(chooseOwnExperts({ ...input, uses: [0.5, 0.64, 0.4, 0.5] }, kept), 1, 4), [[1]]);
  });

  it('fit into its memory, and make a token no slower than if there were none', () => {
    fc.assert(
      fc.property(inputs, (input) => {
        const kept = chooseOwnExperts(input, null);
        assert.equal(kept.length, keptBytes(input));
        assert.ok(countKept(kept) <= input.room);
        const roomy = { ...input, workersRoom: Infinity };
        const none = ownExpertsCost(roomy, new Uint8Array(keptBytes(input)));
        const cost = ownExpertsCost(roomy, chooseOwnExperts(roomy, null));
        // A main that is slower with any expert keeps the one that is used least.
        const least =
          countKept(chooseOwnExperts(roomy, null)) === 1 ? Math.min(...Array.from(input.uses)) * input.ownMs : 0;
        assert.ok(cost.ms <= (none.ms + least) * (1 + 1e-9) + 1e-9, `${cost.ms} against ${none.ms}`);
        assert.ok(cost.messages <= none.messages + 1e-9);
        const again = chooseOwnExperts(input, kept);
        assert.deepEqual(again, chooseOwnExperts(input, again), 'a choice that is made stays');
      }),
    );
  });
});

describe('main: when the experts that it keeps change', () => {
  const SHAPE = { expertLayers: 2, experts: 8, expertsPerToken: 2 };
  let uses: ExpertUses;
  let own: OwnExperts;
  let links: WorkerLink[];
  const placement = planPlacement({
    epoch: 1,
    layers: 2,
    experts: 8,
    expertsPerToken: 2,
    groupSize: 'auto',
    homes: 1,
    workers: ['main-worker', 'box'].map((id) => ({ id, address: '', slots: 1 })),
  });

  const worker = (id: string, partialPack = false, newestProtocol = 0): WorkerLink => {
    const settings = { hiddenSize: 4, experts: 8, executeTimeoutMs: 1000, runtime: RUNTIME };
    return new WorkerLink(
      plainIdentity({ id, newestProtocol }),
      `${id}:1`,
      new MemoryStream(),
      settings,
      silentLog,
      partialPack,
    );
  };
  const report = (link: WorkerLink, room: number, nowMs = 0, shortExecuteMsMean = 0): void => {
    const capacities = { ...NO_CAPACITIES, full: room };
    const cache = {
      policy: 'lru',
      bytes: 1000,
      capacities,
      kept: NO_CAPACITIES,
      hits: NO_CAPACITIES,
      misses: 0,
      packed: 0,
    };
    const status = { ...emptyNodeStatus(link.identity), cache, slotBytes: 10, shortExecuteMsMean };
    link.receive({ kind: 'status', status });
    if (link.id === 'main-worker') own.reported(link, nowMs);
  };
  const route = (choices: readonly [number, number], rows: number): void => {
    for (let row = 0; row < rows; row += 1) for (const layer of [0, 1]) uses.chosen(layer, choices, () => true);
  };
  const better = (kept: Uint8Array | null, nowMs: number): Uint8Array | null =>
    own.better(links, new WorkerSpeeds(), { placement, kept, nowMs });

  beforeEach(() => {
    uses = new ExpertUses(SHAPE);
    own = new OwnExperts('main-worker', uses, { ...GROUPING.costs, executeMs: 0.01 });
    links = [worker('main-worker'), worker('box')];
    for (const link of links) report(link, 4);
  });

  it('they are chosen when enough rows have been routed, of answers alone', () => {
    route([1, 6], 15);
    uses.chosen(0, [2, 3, 2, 3], () => false);
    assert.equal(uses.isMeasured, false);
    assert.equal(better(null, 0), null);
    route([1, 6], 1);
    assert.equal(uses.isMeasured, true);
    route([1, 6], 48);
    const kept = better(null, 0) ?? assert.fail('nothing is chosen');
    assert.deepEqual(keptIn(kept, 2, 8), [
      [1, 6],
      [1, 6],
    ]);
    assert.equal(better(kept, BETWEEN_LOOKS_MS), null, 'they are good enough');
  });

  it('they change when other experts are used, and not at a small difference', () => {
    route([1, 6], 64);
    const kept = better(null, 0) ?? assert.fail('nothing is chosen');
    route([2, 3], 8);
    assert.equal(better(kept, BETWEEN_LOOKS_MS), null);
    route([2, 3], 2000);
    const then = better(kept, 2 * BETWEEN_LOOKS_MS) ?? assert.fail('nothing is chosen');
    assert.deepEqual(keptIn(then, 2, 8), [
      [2, 3],
      [2, 3],
    ]);
  });

  it('they are looked at again only when something has changed, and a choice that was not taken is made again', () => {
    let looks = 0;
    const counts = uses.probabilities.bind(uses);
    uses.probabilities = () => {
      looks += 1;
      return counts();
    };
    route([1, 6], 64);
    const kept = better(null, 0) ?? assert.fail('nothing is chosen');
    assert.deepEqual(better(null, BETWEEN_LOOKS_MS), kept);
    assert.equal(better(kept, 2 * BETWEEN_LOOKS_MS), null);
    assert.equal(looks, 3);
    assert.equal(better(kept, 3 * BETWEEN_LOOKS_MS), null);
    assert.equal(looks, 3);
    route([1, 6], 1);
    assert.equal(better(kept, 4 * BETWEEN_LOOKS_MS), null);
    assert.equal(looks, 4);
  });

  it('they become fewer when answers take their memory, and more again only a while after it is free', () => {
    route([1, 6], 64);
    const kept = better(null, 0) ?? assert.fail('nothing is chosen');
    report(links[0] as WorkerLink, 2, 1000);
    const fewer = better(kept, BETWEEN_LOOKS_MS) ?? assert.fail('nothing is chosen');
    assert.equal(countKept(fewer), 2);
    report(links[0] as WorkerLink, 4, ROOM_KEPT_MS);
    assert.equal(better(fewer, ROOM_KEPT_MS), null);
    report(links[0] as WorkerLink, 4, 2 * ROOM_KEPT_MS);
    assert.equal(countKept(better(fewer, 2 * ROOM_KEPT_MS) ?? assert.fail('nothing is chosen')), 4);
  });

  it('they are given up when answers leave no memory for any, and come back when there is some', () => {
    route([1, 6], 64);
    const kept = better(null, 0) ?? assert.fail('nothing is chosen');
    report(links[0] as WorkerLink, 0, 1000);
    const none = better(kept, BETWEEN_LOOKS_MS) ?? assert.fail('they are kept without memory');
    assert.equal(countKept(none), 0);
    assert.equal(better(none, 2 * BETWEEN_LOOKS_MS), null);
    report(links[0] as WorkerLink, 4, ROOM_KEPT_MS);
    report(links[0] as WorkerLink, 4, 2 * ROOM_KEPT_MS);
    assert.equal(countKept(better(none, 2 * ROOM_KEPT_MS) ?? assert.fail('nothing is chosen')), 4);
  });

  it('a main without memory for any chooses none, and has its share of the homes', () => {
    route([1, 6], 64);
    report(links[0] as WorkerLink, 0, 1000);
    assert.equal(better(null, BETWEEN_LOOKS_MS), null);
  });

  it('main keeps none beside a worker of an old release that fetches its experts, and none is chosen; they come back when it leaves', () => {
    let nowMs = 0;
    const homes = new HomesPlan(16, own, () => nowMs);
    const keptNow = (): number =>
      [...homes.of(links, 'present').values()].reduce(
        (sum, { keptExperts }) => sum + countKept(keptExperts ?? new Uint8Array()),
        0,
      );
    route([1, 6], 64);
    const [mine, box] = links as [WorkerLink, WorkerLink];
    links = [mine, worker('old', true)];
    report(links[1] as WorkerLink, 4);
    assert.equal(homes.plan(links, placement), false);
    links = [mine, worker('new', true, NEWEST_PROTOCOL)];
    report(links[1] as WorkerLink, 4);
    assert.equal(homes.plan(links, placement), true);
    homes.takePlan();
    assert.equal(keptNow(), 4);
    links = [mine, worker('old', true)];
    assert.equal(keptNow(), 0);
    nowMs = BETWEEN_CHANGES_MS;
    assert.equal(homes.plan(links, placement), false);
    links = [mine, box];
    assert.equal(keptNow(), 4);
  });

  it('they are given up also while plans rest after one that was overdue, and a plan that would keep too many is dropped', () => {
    let nowMs = 0;
    const homes = new HomesPlan(16, own, () => nowMs);
    route([1, 6], 64);
    assert.equal(homes.plan(links, placement), true);
    homes.takePlan();
    route([2, 3], 2000);
    nowMs = BETWEEN_CHANGES_MS;
    assert.equal(homes.plan(links, placement), true);
    nowMs += PLAN_LIMIT_MS;
    assert.equal(homes.isOutdated, true);
    homes.dropPlan();
    assert.equal(homes.plan(links, placement), false, 'plans rest');
    report(links[0] as WorkerLink, 2, nowMs);
    assert.equal(homes.plan(links, placement), true);
    assert.equal(homes.isOutdated, false);
    report(links[0] as WorkerLink, 1, nowMs);
    assert.equal(homes.isOutdated, true);
  });

  it('one worker with false numbers changes little', () => {
    let speeds = new WorkerSpeeds();
    links = ['main-worker', 'a', 'b', 'c'].map((id) => worker(id));
    const tell = (link: WorkerLink, changes: Partial<NodeStatus>): void => {
      for (let times = 1; times <= LEAST_STATUSES; times += 1) {
        const status = { ...emptyNodeStatus(link.identity), executions: times * LEAST_EXECUTIONS, ...changes };
        link.receive({ kind: 'status', status });
        speeds.reported(link);
      }
    };
    for (const link of links) tell(link, { shortExecuteMsMean: link.id === 'main-worker' ? 20 : 1, loadMsMean: 5 });
    const [mine, , , liar] = links as [WorkerLink, WorkerLink, WorkerLink, WorkerLink];
    report(mine, 8);
    route([1, 6], 64);
    const chosen = (): Uint8Array | null => {
      const fresh = new OwnExperts('main-worker', uses, GROUPING.costs);
      fresh.reported(mine, 0);
      return fresh.better(links, speeds, { placement, kept: new Uint8Array(2), nowMs: 0 });
    };
    const before = chosen() ?? assert.fail('nothing is chosen');
    assert.ok(countKept(before) < 8, 'main is too slow for all that it has room for');
    tell(liar, { shortExecuteMsMean: 1, loadMsMean: 1e9 });
    assert.deepEqual(chosen(), before);
    speeds = new WorkerSpeeds();
    tell(liar, { shortExecuteMsMean: 1e9, loadMsMean: 1e9 });
    assert.deepEqual(speeds.of(liar), { executeMs: 60_000, loadMs: 60_000, cached: 0 });
  });

  it('a bitmap has the experts that were put into it', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(7 * 13 - 1), { maxLength: 30 }), (places) => {
        const kept = new Uint8Array(keptBytes({ layers: 7, experts: 13 }));
        for (const place of places) keep(kept, 13, Math.floor(place / 13), place % 13);
        assert.equal(countKept(kept), places.length);
        const found = keptIn(kept, 7, 13).flatMap((ofLayer, layer) => ofLayer.map((expert) => layer * 13 + expert));
        assert.deepEqual(
          found,
          [...places].sort((left, right) => left - right),
        );
      }),
    );
  });
});
