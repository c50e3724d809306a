import assert from 'node:assert/strict';
import fc from 'fast-check';
import { PredictionPost } from '../../main-node/decode/prediction-post.js';
import {
  JointDealer,
  announcedByPrediction,
  Announcements,
  type AnnouncedPass,
} from '../../main-node/pass/announcements.js';
import { assignMoreExperts, takersOf } from '../../main-node/pass/plan-layer.js';
import { groupForLayer, planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { workersForPrefillExpert } from '../../shared/decisions/placement/prefill-workers.js';
import { strictHomesOf } from '../../shared/decisions/placement/strict-homes.js';
import type { Placement, Predict } from '../../shared/wire/messages.js';
import { answerRows, memberOf, PassCluster, promptRows } from './pass-cluster.js';
import { planLayer } from '../../main-node/pass/plan-layer.js';
import { RecordingWorkers } from './recording-workers.js';
import { plainPrediction, restartAt } from './wire-messages.js';

const EXPERTS = 8;
const LAYERS = 4;
const LAST = EXPERTS - 1;

function placementOf(workers: number, changes: { epoch?: number; homes?: number; expertsPerToken?: number } = {}) {
  return planPlacement({
    epoch: 1,
    layers: LAYERS,
    experts: EXPERTS,
    expertsPerToken: 2,
    groupSize: 'auto' as const,
    ...changes,
    workers: Array.from({ length: workers }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 })),
  });
}

const forWorkers = (
  sequence: number,
  position: number,
  layer: number,
  experts: number[],
  workers: number[] = [],
): Predict => plainPrediction({ sequence, position, layer, experts, workers });
const forMain = (sequence: number, position: number, layer: number, experts: number[]): Predict => ({
  ...forWorkers(sequence, position, layer, experts),
  mainAnnounces: true,
});

describe('placement: experts added beside already announced ones', () => {
  const situations = fc.record({
    placement: fc
      .tuple(fc.integer({ min: 1, max: 11 }), fc.integer({ min: 0, max: 2 }), fc.integer({ min: 1, max: 4 }))
      .map(([workers, homes, expertsPerToken]) => placementOf(workers, { homes, expertsPerToken })),
    layer: fc.nat(LAYERS - 1),
    needed: fc.integer({ min: 1, max: EXPERTS }),
    first: fc.uniqueArray(fc.nat(LAST)),
    more: fc.uniqueArray(fc.nat(LAST)),
  });

  it('go to one worker each, decided by the sets alone, and not to workers that have them', () => {
    fc.assert(
      fc.property(situations, ({ placement, layer, needed, first, more }) => {
        const takers = takersOf(placement, layer, needed);
        const known = assignMoreExperts(takers, layer, new Map(), first);
        const added = assignMoreExperts(takers, layer, known, more);
        assert.deepEqual([...known.keys()].sort(), [...first].sort());
        assert.deepEqual([...added.keys()].sort(), more.filter((expert) => !first.includes(expert)).sort());
        assert.deepEqual(assignMoreExperts(takers, layer, known, [...more, ...more].reverse()), added);
      }),
    );
  });

  it('are spread evenly, at their homes where those have room', () => {
    fc.assert(
      fc.property(situations, ({ placement, layer, needed, first, more }) => {
        const takers = takersOf(placement, layer, needed);
        const isStrict = placement.homes > 0;
        const workers = isStrict ? placement.workers.map(({ id }) => id) : groupForLayer(takers, layer);
        const isWide = !isStrict && needed > groupForLayer(placement, layer).length;
        assert.equal(workers.length, isWide ? placement.workers.length : workers.length);
        const known = assignMoreExperts(takers, layer, new Map(), first);
        const added = assignMoreExperts(takers, layer, known, more);
        let all = new Map<number, string>();
        for (const fresh of [known, added]) {
          all = new Map([...all, ...fresh]);
          const share = Math.ceil(all.size / workers.length);
          const loads = new Map(workers.map((id) => [id, [...all.values()].filter((holder) => holder === id).length]));
          if (!isStrict) assert.ok(workers.every((id) => (loads.get(id) ?? 0) <= share));
          for (const [expert, worker] of fresh) {
            if (isStrict) assert.ok(strictHomesOf(placement, layer, expert).includes(worker));
            else assert.ok(workers.includes(worker));
            const [home] = workersForPrefillExpert(placement, layer, expert);
            // An expert may be at another worker only if its home has its full share.
            if (isWide && worker !== home) assert.equal(loads.get(home ?? ''), share);
          }
        }
      }),
    );
  });

  it('are placed as in prefill where all experts are added', () => {
    fc.assert(
      fc.property(situations, ({ placement, layer }) => {
        if (placement.homes > 0) return;
        const everybody = takersOf(placement, layer, Infinity);
        const all = Array.from({ length: EXPERTS }, (_, expert) => expert);
        for (const [expert, worker] of assignMoreExperts(everybody, layer, new Map(), all))
          assert.equal(worker, workersForPrefillExpert(placement, layer, expert)[0]);
      }),
    );
  });
});

describe('main: the announcer of a pass of several sequences', () => {
  function announcementsOf(workers: RecordingWorkers, changes: Partial<AnnouncedPass> = {}): Announcements {
    const rows = [7, 8].map((sequence) => ({ sequence, position: 10, rows: 1 }));
    return new Announcements(
      {
        pass: { sequence: 7, position: 10 },
        rows,
        differentRows: 2,
        copies: 1,
        spread: 'group' as const,
        announcedByOthers: () => [],
        precision: null,
        ...changes,
      },
      workers,
      new JointDealer(() => false),
    );
  }
  const expected = (sequence: number, experts: number[]) => ({ experts, rows: [{ sequence, position: 10, rows: 1 }] });

  it('names each expert once, under the name of the pass, with the rows that need it', () => {
    const workers = new RecordingWorkers(placementOf(4));
    const pass = announcementsOf(workers);
    pass.announce(1, [expected(7, [1, 2]), expected(8, [2, 3])]);
    pass.announce(1, [expected(8, [1, 3, 4])]);
    assert.deepEqual(workers.predicted.map((text) => text.slice(3)).sort(), ['10/1 1', '10/1 2', '10/1 3', '10/1 4']);
    assert.equal(new Set(workers.predictions.map(([id]) => id)).size, 4);
    const rowsOf = (expert: number): number[] | undefined =>
      workers.predictions.find(([, { experts }]) => experts.includes(expert))?.[1].rows.map(({ sequence }) => sequence);
    assert.deepEqual([1, 2, 3, 4].map(rowsOf), [[7], [7, 8], [8], [8]]);
    assert.ok(
      workers.predictions.every(
        ([
          ,
          {
            pass: { sequence },
          },
        ]) => sequence === 7,
      ),
    );
    const { holders } = pass.settle(placementOf(4), 1, []);
    assert.deepEqual([...(holders?.keys() ?? [])].sort(), [1, 2, 3, 4]);
    pass.announce(1, [expected(7, [5])]);
    assert.equal(workers.predictions.length, 4, 'the router has chosen');
  });

  it('leaves out experts that shadow announced, and chooses the worker where both name one', () => {
    const workers = new RecordingWorkers(placementOf(4));
    const others = [announcedByPrediction(placementOf(4), forWorkers(8, 10, 0, [1, 2], [3, 2])), null];
    const pass = announcementsOf(workers, { announcedByOthers: () => others });
    pass.announce(0, [expected(7, [1, 3])]);
    assert.deepEqual(
      workers.predictions.map(([, { experts }]) => experts),
      [[3]],
    );
    const settled = pass.settle(placementOf(4), 0, [
      new Map([
        [1, 'w3'],
        [2, 'w2'],
      ]),
      new Map([[1, 'w0']]),
    ]);
    assert.deepEqual([...(settled.holders?.keys() ?? [])].sort(), [1, 2, 3]);
    assert.deepEqual(settled.superseded, [[1, 'w0']]);
  });

  for (const isAhead of [false, true]) {
    it(`takes back what it has dealt to workers where the pass is not run (announced ahead of it: ${isAhead})`, () => {
      const dealer = new JointDealer(() => false);
      const workers = new RecordingWorkers(placementOf(4));
      const of: AnnouncedPass = {
        pass: { sequence: 7, position: 10 },
        rows: [{ sequence: 7, position: 10, rows: 2 }],
        differentRows: 2,
        copies: 1,
        spread: 'all',
        announcedByOthers: () => [],
        precision: null,
      };
      const first = new Announcements(of, workers, dealer);
      first.announce(0, [expected(7, [1, 3])]);
      assert.ok(dealer.openCount > 0);
      const pass = isAhead ? new Announcements(of, workers, dealer) : first;
      if (isAhead) pass.adopt(first);
      pass.release();
      assert.equal(dealer.openCount, 0, 'the next pass would be dealt around loads that nobody makes');
      assert.deepEqual(workers.releases.flatMap(([, { experts }]) => experts).sort(), [1, 3]);
    });
  }

  it('forgets its announcements under another placement', () => {
    const workers = new RecordingWorkers(placementOf(4));
    const pass = announcementsOf(workers);
    pass.announce(0, [expected(7, [1])]);
    workers.placement = placementOf(3, { epoch: 2 });
    assert.equal(pass.settle(workers.placement, 0, []).holders, null);
    pass.announce(1, [expected(7, [1])]);
    assert.equal(workers.predictions.at(-1)?.[1].epoch, 2);
  });

  it('has announced nothing where it was only asked what is announced', () => {
    const workers = new RecordingWorkers(placementOf(4));
    const pass = announcementsOf(workers);
    assert.deepEqual([...pass.heldAt(1)], []);
    assert.equal(pass.settle(placementOf(4), 1, []).holders, null);
  });

  it('says to the same workers that it doubts experts, once, and that it announces them again', () => {
    const workers = new RecordingWorkers(placementOf(4));
    const pass = announcementsOf(workers);
    pass.announce(0, [expected(7, [1, 5])]);
    const announced = workers.predicted;
    pass.doubt(0, [1, 6]);
    pass.doubt(0, [1]);
    const [doubt, ...others] = workers.predictions.slice(announced.length);
    assert.deepEqual([doubt?.[1].experts, doubt?.[1].doubted, others.length], [[1], true, 0]);
    assert.ok(workers.predictions.some(([id, { experts }]) => id === doubt?.[0] && experts.includes(1)));
    assert.deepEqual([[...pass.heldAt(0)], [...pass.ownAt(0)]], [[5], [[5, 0]]]);
    pass.announce(0, [expected(7, [1, 5])]);
    const again = workers.predictions.at(-1);
    assert.deepEqual([again?.[0], again?.[1].experts, again?.[1].doubted], [doubt?.[0], [1], undefined]);
    pass.doubt(0, [5]);
    assert.deepEqual([...(pass.settle(workers.placement as Placement, 0, []).holders?.keys() ?? [])].sort(), [1, 5]);
    const before = workers.predictions.length;
    pass.doubt(0, [1]);
    assert.equal(workers.predictions.length, before, 'the router has chosen');
  });

  it('knows how many layers ago it announced each expert, the last time', () => {
    const workers = new RecordingWorkers(placementOf(4));
    const pass = announcementsOf(workers);
    const { placement } = workers;
    assert.ok(placement);
    pass.announce(3, [expected(7, [1, 5])]);
    pass.settle(placement, 0, []);
    pass.announce(3, [expected(7, [6])]);
    pass.doubt(3, [5]);
    pass.settle(placement, 1, []);
    assert.deepEqual(
      [...pass.ownAt(3)],
      [
        [1, 2],
        [6, 1],
      ],
    );
    pass.announce(3, [expected(7, [5])]);
    assert.equal(pass.ownAt(3).get(5), 0);
    assert.deepEqual([...pass.ownAt(2)], []);
  });

  it('counts an expert that it doubted as not announced, unless it or others have announced it again', () => {
    const workers = new RecordingWorkers(placementOf(4));
    const { placement } = workers;
    assert.ok(placement);
    const pass = announcementsOf(workers);
    pass.announce(0, [expected(7, [1, 5, 6])]);
    pass.doubt(0, [1, 5, 6]);
    pass.announce(0, [expected(7, [6])]);
    const announced = pass.settle(placement, 0, [new Map([[5, 'w0']])]);
    assert.deepEqual([...(announced.doubted ?? [])], [1]);
    const activated = new Map([1, 5, 6].map((expert) => [expert, [{ row: 0, rank: 0 }]] as const));
    const plan = planLayer(placement, 0, announced, activated, { spread: 'group', isAlone: true, batchRows: Infinity });
    assert.deepEqual([...plan.asAnnounced].sort(), [5, 6]);
    const [holder] = announced.holders?.get(1) ?? [];
    assert.equal(plan.work.find(({ expert }) => expert === 1)?.workerId, holder, 'it runs where it was announced');
  });

  it('releases doubted experts, and announces them again with the whole layer', () => {
    for (const whole of [false, true]) {
      const workers = new RecordingWorkers(placementOf(4));
      const pass = announcementsOf(workers);
      pass.announce(0, [expected(7, [1])]);
      pass.doubt(0, [1]);
      if (whole) {
        pass.announceWholeLayer(0);
        const times = workers.predictions.filter(([, { experts, doubted }]) => doubted !== true && experts.includes(1));
        assert.equal(times.length, 2);
      }
      pass.release();
      assert.deepEqual(
        workers.releases.flatMap(([, { experts }]) => experts.filter((expert) => expert === 1)),
        [1],
      );
    }
  });

  it('announces the rest of a layer, each expert once', () => {
    const workers = new RecordingWorkers(placementOf(4));
    const pass = announcementsOf(workers);
    pass.announce(0, [expected(7, [1, 5])]);
    pass.announceWholeLayer(0);
    pass.announceWholeLayer(0);
    pass.announce(0, [expected(8, [6])]);
    const experts = workers.predictions.flatMap(([, prediction]) => prediction.experts);
    assert.deepEqual(experts.sort(), [0, 1, 2, 3, 4, 5, 6, 7]);
    const holders = [...(pass.settle(workers.placement as Placement, 0, []).holders?.values() ?? [])].flat();
    for (const { id } of placementOf(4).workers) assert.equal(holders.filter((holder) => holder === id).length, 2);
  });
});

describe('main: predictions for a pass of several sequences', () => {
  const FED = { id: 's', alive: true, backlogBytes: 0, send: () => undefined };

  function fixture(onAttend: (layer: number, post: PredictionPost) => void) {
    const router = (token: number): number[] => [token, token + 1];
    const cluster = new PassCluster({
      experts: EXPERTS,
      layers: LAYERS,
      router,
      onAttend: (layer) => {
        onAttend(layer, post);
      },
    });
    const members = [7, 8].map((id) => memberOf(id, { layers: LAYERS }));
    const post = new PredictionPost(cluster.workers, cluster.passes);
    for (const member of members)
      post.open(member.id, {
        predictions: member.predictions,
        feed: { dropped: () => undefined, forget: () => undefined, prefixKept: () => true, isFedBy: () => true },
        drafts: { arrive: () => undefined, restart: () => undefined, shadowLost: () => undefined },
      });
    const run = () => cluster.run(members.map((member, index) => answerRows(member, 10, [1 + 2 * index])));
    return { cluster, members, post, run };
  }

  it('are announced when their pass begins, or on arrival; late and foreign ones are not', async () => {
    const { cluster, members, post, run } = fixture((layer, ownPost) => {
      if (layer !== 1) return;
      ownPost.arrive(forMain(8, 10, 0, [3, 4]), FED);
      ownPost.arrive(forMain(8, 10, 2, [3, 4]), FED);
      ownPost.arrive(forMain(8, 11, 0, [3, 4]), FED);
    });
    post.arrive(forMain(7, 10, 1, [1, 2]), FED);
    assert.deepEqual(cluster.workers.predictions, [], 'no pass runs');
    await run();
    assert.deepEqual(cluster.workers.announcedExperts.map((text) => text.slice(3)).sort(), [
      '10/1 1',
      '10/1 2',
      '10/2 3',
      '10/2 4',
    ]);
    assert.deepEqual(cluster.workers.releases, []);
    assert.deepEqual(
      members.map(({ counters }) => counters.reloads),
      [6, 6],
    );
    const figures = members.map(({ predictions }) => predictions.metrics());
    assert.deepEqual(
      figures.map(({ activated, predictedCorrectly, late }) => [activated, predictedCorrectly, late]),
      [
        [8, 2, 0],
        [8, 4, 1],
      ],
    );
  });

  it('are released where they prove wrong, one message a worker, also those of shadow for one row', async () => {
    const { cluster, post, run } = fixture(() => undefined);
    post.arrive(forMain(7, 10, 0, [1, 5, 6]), FED);
    post.arrive(forMain(8, 10, 0, [5, 7]), FED);
    post.arrive(forWorkers(8, 10, 1, [3, 6], [0, 1]), FED);
    await run();
    const { releases, releasedExperts, asked } = cluster.workers;
    assert.deepEqual(releasedExperts.map((text) => text.slice(3)).sort(), ['10/0 5', '10/0 6', '10/0 7', '10/1 6']);
    assert.equal(new Set(releases.map(([id, { layer }]) => `${id} ${layer}`)).size, releases.length);
    assert.ok(releases.every(([, { pass, rows }]) => pass.sequence === 7 && rows.length === 2));
    assert.ok(asked.includes('w0 10/1 3'), 'it runs where shadow had announced it');
  });

  it('are void from where shadow starts again, and announced ones are released if they are not chosen', async () => {
    const { cluster, post, run } = fixture((layer, ownPost) => {
      if (layer !== 0) return;
      ownPost.restart(restartAt({ sequence: 8, position: 10 }), FED);
      ownPost.arrive(forMain(8, 10, 3, [3, 4]), FED);
    });
    post.arrive(forMain(8, 10, 3, [6, 7]), FED);
    await run();
    assert.deepEqual(cluster.workers.releasedExperts.map((text) => text.slice(3)).sort(), ['10/3 6', '10/3 7']);
    assert.equal(cluster.workers.unannounced.filter((text) => text.includes('/3 ')).length, 2, 'experts 1 and 2');
  });

  it('are never announced for prompts and for rows that are computed again', async () => {
    const { cluster, members, post } = fixture(() => undefined);
    const [one, other] = members;
    assert.ok(one !== undefined && other !== undefined);
    post.arrive(forMain(8, 10, 1, [3]), FED);
    await cluster.run([answerRows(one, 10, [1]), promptRows(other, 9, 2)]);
    assert.deepEqual(cluster.workers.predictions, []);
  });

  it('of main itself are announced anew where their rows come in a pass of another name', async () => {
    const engine = { prediction: { source: 'random' as const, layersAhead: 1 } };
    const cluster = new PassCluster({ experts: EXPERTS, engine });
    const [one, other] = [memberOf(7, { fed: false }), memberOf(8, { fed: false })];
    await cluster.run([answerRows(one, 10, [1])]);
    await cluster.run([answerRows(other, 10, [1])]);
    const { predictions, releases } = cluster.workers;
    const ahead = predictions.filter(([, { pass }]) => pass.position === 11);
    assert.deepEqual(new Set(ahead.map(([, { pass }]) => pass.sequence)), new Set([7, 8]), 'under their own names');
    releases.length = 0;
    await cluster.run([answerRows(one, 11, [1]), answerRows(other, 11, [1])]);
    const textOf = ([id, { pass, layer, experts }]: (typeof releases)[number] | (typeof predictions)[number]): string =>
      `${id} ${pass.sequence}/${layer} ${experts.join()}`;
    const ofOther = ahead.filter(([, { pass }]) => pass.sequence === 8).map(textOf);
    assert.deepEqual(releases.filter(([, { pass }]) => pass.sequence === 8).map(textOf), ofOther);
    for (const [, announced] of ahead) {
      const joint = predictions.filter(
        ([, { pass, layer }]) => pass.sequence === 7 && pass.position === 11 && layer === announced.layer,
      );
      const known = new Set(joint.flatMap(([, { experts }]) => experts));
      assert.ok(
        announced.experts.every((expert) => known.has(expert)),
        'under the name of the joint pass',
      );
    }
  });
});
