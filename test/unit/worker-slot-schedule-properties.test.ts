import { EXPERT_POLICIES } from '../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import type { ExpertLoads } from '../../worker-node/loader/slot-schedule.js';
import { ModelDevice, type ModelCache } from './worker-model-device.js';

const places = fc.record({ sequence: fc.nat(2), position: fc.nat(2), layer: fc.nat(3), expert: fc.nat(3) });
/** Rows of one sequence, or of two that share a pass. */
const rowsOfPass = fc
  .tuple(fc.nat(2), fc.nat(2), fc.option(fc.tuple(fc.nat(2), fc.nat(2))))
  .map(([sequence, position, second]) => {
    const own = passOfSequence(sequence, position, 1);
    if (second === null || second[0] === sequence) return own;
    return { pass: own.pass, rows: [...own.rows, { sequence: second[0], position: second[1], rows: 1 }] };
  });
const layers = fc
  .tuple(rowsOfPass, fc.nat(3), fc.uniqueArray(fc.nat(3), { maxLength: 3 }))
  .map(([rows, layer, experts]) => ({ ...rows, layer, experts }));
const predictions = fc
  .tuple(layers, fc.uniqueArray(fc.nat(3), { maxLength: 2 }))
  .map(([layer, critical]) => ({ ...layer, critical }));
type Step = (device: ModelDevice) => void;
const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: predictions.map(
      (layer): Step =>
        (device) =>
          device.send({ kind: 'predict', source: 'shadow', ...layer }),
    ),
  },
  {
    weight: 2,
    arbitrary: predictions.map(
      (layer): Step =>
        (device) =>
          device.send({ kind: 'predict', source: 'main', ...layer }),
    ),
  },
  {
    // A set of predicted experts that grows: the earlier ones and more.
    weight: 2,
    arbitrary: fc.tuple(layers, fc.uniqueArray(fc.nat(3), { maxLength: 3 })).map(([layer, more]): Step => (device) => {
      device.send({ kind: 'predict', source: 'shadow', ...layer });
      const underWay = device.loading();
      device.send({
        kind: 'predict',
        source: 'shadow',
        ...layer,
        experts: [...new Set([...layer.experts, ...more])],
      });
      for (const load of underWay) assert.ok(device.loading().includes(load), `the load ${load} was cut off`);
    }),
  },
  {
    weight: 2,
    arbitrary: fc.tuple(fc.nat(2), fc.nat(3)).map(
      ([sequence, position]): Step =>
        (device) =>
          device.send({ kind: 'restart', sequence, position }),
    ),
  },
  {
    weight: 5,
    arbitrary: fc.tuple(places, fc.boolean(), fc.boolean()).map(
      ([place, last, readsLower]): Step =>
        (device) =>
          device.execute(place, last, readsLower),
    ),
  },
  {
    weight: 2,
    arbitrary: layers.map(
      (layer): Step =>
        (device) =>
          device.send({ kind: 'release', ...layer }),
    ),
  },
  {
    weight: 2,
    arbitrary: layers.map(
      (layer): Step =>
        (device) =>
          device.send({ kind: 'doubt', ...layer }),
    ),
  },
  {
    weight: 8,
    arbitrary: fc.tuple(fc.nat(7), fc.boolean(), fc.boolean()).map(
      ([choice, failsOnce, failsTwice]): Step =>
        (device) =>
          void device.settle(choice, failsOnce && failsTwice),
    ),
  },
  { weight: 5, arbitrary: fc.constant<Step>((device) => device.endTurn()) },
  { weight: 2, arbitrary: fc.constant<Step>((device) => device.endDecisionWait()) },
  { weight: 1, arbitrary: fc.constant<Step>((device) => device.send({ kind: 'epochChanged' })) },
  {
    weight: 1,
    arbitrary: fc.nat(2).map(
      (sequence): Step =>
        (device) =>
          device.send({ kind: 'end', sequence }),
    ),
  },
  { weight: 1, arbitrary: fc.constant<Step>((device) => device.abandon()) },
  {
    weight: 1,
    arbitrary: fc.subarray([0, 1, 2, 3]).map(
      (layers): Step =>
        (device) =>
          device.serve(layers),
    ),
  },
);

const pool = fc.nat(2);
const caches: fc.Arbitrary<ModelCache | null> = fc.option(
  fc.record({
    policy: fc.constantFrom(...EXPERT_POLICIES),
    layers: fc.constant(4),
    experts: fc.constant(4),
    each: fc.record({ full: pool, compressed: pool, signMantissa: pool, exponent: pool }),
  }),
  { freq: 3 },
);

/** Room for some upper slices, or for all slices. */
const slices: fc.Arbitrary<ModelCache> = fc
  .record({
    lowerBytes: fc.constantFrom(0, 2, 3, 5),
    lowerPlaces: fc.integer({ min: 1, max: 2 }),
    moreBytes: fc.nat(40),
    refusals: fc.constantFrom(0, 0, 3),
  })
  .map(({ moreBytes, ...cache }) => ({
    ...cache,
    policy: 'sliced',
    layers: 4,
    experts: 4,
    upperBytes: 4,
    bytes: 4 + cache.lowerPlaces * cache.lowerBytes + moreBytes,
  }));

/** The cache of experts, or sliced experts with and without one. */
const kinds = fc.oneof(
  { weight: 3, arbitrary: caches.map((cache) => ({ cache, loads: 'whole' as const })) },
  {
    weight: 4,
    arbitrary: fc
      .tuple(slices, fc.constantFrom<ExpertLoads>('whole', 'slices'))
      .map(([cache, loads]) => ({ cache, loads })),
  },
  { weight: 2, arbitrary: fc.constant({ cache: null, loads: 'slices' as const }) },
);

describe('worker: the slot schedule under random events', () => {
  it('never overwrites or evicts an expert in use, loads none twice, and runs each execute once with the slices that it reads', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 4 }),
        kinds,
        fc.array(steps, { maxLength: 120, size: 'max' }),
        (slotCount, kind, script) => {
          const device = new ModelDevice(slotCount, kind.cache, kind.loads);
          for (const step of script) step(device);
          device.drain();
          for (const ticket of device.asked.keys()) {
            assert.ok(
              device.answered.has(ticket) || device.abandoned.has(ticket),
              `ticket ${ticket} is never answered`,
            );
          }
          for (const sequence of [0, 1, 2]) device.send({ kind: 'end', sequence });
          device.drain();
          assertAtRest(device);
        },
      ),
      { numRuns: 1000 },
    );
  });

  it('keeps no slot but those of the cache after main is lost, however much was running', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 3 }),
        kinds,
        fc.array(steps, { maxLength: 60, size: 'max' }),
        (slotCount, kind, script) => {
          const device = new ModelDevice(slotCount, kind.cache, kind.loads);
          for (const step of script) step(device);
          device.abandon();
          device.drain();
          assertAtRest(device);
        },
      ),
      { numRuns: 300 },
    );
  });

  it('keeps nothing that only shadow has announced after a restart from the start', () => {
    const shadowSteps = fc.array(
      fc.oneof(
        layers.map(
          (layer): Step =>
            (device) =>
              device.send({ kind: 'predict', source: 'shadow', ...layer }),
        ),
        fc.nat(7).map(
          (choice): Step =>
            (device) =>
              void device.settle(choice, false),
        ),
      ),
      { maxLength: 60, size: 'max' },
    );
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4 }), kinds, shadowSteps, (slotCount, kind, script) => {
        const device = new ModelDevice(slotCount, kind.cache, kind.loads);
        for (const step of script) step(device);
        for (const sequence of [0, 1, 2]) device.send({ kind: 'restart', sequence, position: 0 });
        device.drain();
        assertAtRest(device);
      }),
      { numRuns: 200 },
    );
  });

  it('gives the same decisions when repeated', () => {
    const run = (slotCount: number, kind: { cache: ModelCache | null; loads: ExpertLoads }, script: Step[]): string => {
      const device = new ModelDevice(slotCount, kind.cache, kind.loads);
      for (const step of script) step(device);
      return JSON.stringify([device.slots, [...device.answered], device.schedule.counters]);
    };
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 3 }),
        kinds,
        fc.array(steps, { maxLength: 60, size: 'max' }),
        (slotCount, kind, script) => {
          assert.equal(run(slotCount, kind, script), run(slotCount, kind, script));
        },
      ),
      { numRuns: 50 },
    );
  });
});

/** Fails unless working slots are free and the cache's slots have the experts that the pools list for them. */
function assertAtRest(device: ModelDevice): void {
  assert.equal(device.schedule.slotsInUse, 0);
  assert.ok(device.working.every((slot) => slot.phase === 'empty'));
  const isInSlot = (state: string): boolean => device.decisions?.keeps === 'slices' || state === 'full';
  const kept = (device.decisions?.cached() ?? []).filter(({ state }) => isInSlot(state));
  assert.deepEqual(
    device.cached.flatMap(({ phase, content }) => (phase === 'loaded' ? [content] : [])).sort(),
    kept.map(({ layer, expert }) => `${layer} ${expert}`).sort(),
  );
}
