import assert from 'node:assert/strict';
import fc from 'fast-check';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { perState } from '../../shared/decisions/caching/load-times.js';
import { perPart } from '../../shared/model/expert-parts.js';
import { planSlicedCache } from '../../engine/planning/plan-sliced-cache.js';
import { SlicedCache } from '../../worker-node/cache/sliced-cache.js';
import type { CacheUse } from '../../worker-node/loader/cache-decisions.js';

const UPPER = 4;
const LOWER = 3;
const EXPERTS = 8;
const LAYERS = 2;
/** The number of the cache's first slot. */
const FIRST = 2;
const NOTHING = perPart(() => false);

/** A cache of slices with one place for a lower slice that it does not keep, and the memory that its slots have. */
class Cached {
  readonly cache: SlicedCache;
  readonly upper = new Set<number>();
  readonly lower = new Set<number>();
  refuses = false;
  /** Bytes of the cache that others have taken. */
  takenBytes = 0;

  constructor(
    readonly keptBytes: number,
    isShared = false,
    hasLower = true,
  ) {
    const lowerPlaces = hasLower ? 1 : 0;
    const bytes = keptBytes + lowerPlaces * LOWER;
    const slots = Math.min(EXPERTS * LAYERS, Math.floor(bytes / UPPER));
    for (let slot = 0; slot < slots; slot += 1) this.upper.add(FIRST + slot);
    const take = (memory: Set<number>, slot: number): void => {
      const addedBytes = memory === this.upper ? UPPER : LOWER;
      if (this.refuses || (this.takenBytes > 0 && this.usedBytes + addedBytes > bytes - this.takenBytes)) {
        throw new OdmoeError('DEVICE_OUT_OF_MEMORY', 'the device is full');
      }
      memory.add(slot);
      assert.ok(this.usedBytes <= bytes, `${this.usedBytes} of ${bytes} bytes`);
    };
    const calls = {
      take: (slot: number) => take(this.upper, slot),
      letGo: (slot: number) => void [this.upper.delete(slot), this.lower.delete(slot)],
      takeLower: (slot: number) => take(this.lower, slot),
      letGoLower: (slot: number) => void this.lower.delete(slot),
    };
    this.cache = new SlicedCache({
      shape: { upperBytes: UPPER, lowerBytes: hasLower ? LOWER : 0, experts: EXPERTS, hasLower, lowerPlaces },
      memory: { slots, firstSlot: FIRST, bytes, isShared, calls },
      counts: new ActivationCounts('digest', EXPERTS),
    });
    this.serve([0, 1]);
  }

  get decisions(): SlicedCache['decisions'] {
    return this.cache.decisions;
  }

  get usedBytes(): number {
    return this.upper.size * UPPER + this.lower.size * LOWER;
  }

  serve(layers: number[]): void {
    this.decisions.setCapacities(this.cache.capacitiesFor(layers));
  }

  /** Begins a use and ends its load, if it needs one. */
  begin(expert: number, layer = 0): CacheUse {
    const [use = assert.fail()] = this.decisions.acquire(layer, [expert]);
    if (use.state === 'missing') this.decisions.loaded(use, { loaded: true, cached: NOTHING });
    return use;
  }

  /** A use that reads the lower slices. */
  beginBoth(expert: number, layer = 0): CacheUse {
    const use = this.begin(expert, layer);
    assert.equal(this.decisions.takeLower(use), 'taken');
    this.decisions.lowerLoaded(use, true);
    return use;
  }

  use(expert: number, layer = 0): CacheUse {
    const use = this.begin(expert, layer);
    this.decisions.endUse(use);
    return use;
  }

  useBoth(expert: number, layer = 0): CacheUse {
    const use = this.beginBoth(expert, layer);
    this.decisions.endUse(use);
    return use;
  }

  get contents(): string[] {
    return this.decisions.cached().map(({ layer, expert, state }) => `${layer} ${expert} ${state}`);
  }
}

describe('worker: the cache of slices', () => {
  it('is one for all layers, and lets the upper slices go that were used longest ago', () => {
    const cached = new Cached(3 * UPPER, false, false);
    for (const [layer, expert] of [
      [0, 1],
      [1, 1],
      [0, 2],
      [0, 1],
      [1, 7],
    ] as const)
      cached.use(expert, layer);
    assert.deepEqual(cached.contents, ['0 2 full', '0 1 full', '1 7 full'], 'upper slices are all that is loaded');
  });

  it('lets lower slices go before upper ones, and gives their memory back for these', () => {
    const cached = new Cached(2 * UPPER + 2 * LOWER);
    cached.useBoth(0);
    cached.useBoth(1);
    assert.deepEqual(cached.contents, ['0 0 full', '0 1 full']);
    assert.equal(cached.lower.size, 2);
    assert.equal(cached.use(2).state, 'missing');
    assert.deepEqual(cached.contents, ['0 0 exponent', '0 1 exponent', '0 2 exponent'], '14 bytes hold three');
    assert.equal(cached.use(0).state, 'exponent');
    cached.use(3);
    assert.deepEqual(cached.contents, ['0 2 exponent', '0 0 exponent', '0 3 exponent']);
  });

  it('uses a lower slice for which there is no room in a place that it leaves again', () => {
    const cached = new Cached(2 * UPPER);
    cached.use(0);
    cached.use(1);
    const first = cached.beginBoth(0);
    const second = cached.begin(1);
    assert.equal(cached.decisions.takeLower(second), 'noRoom', 'one place');
    cached.decisions.endUse(first);
    assert.deepEqual(cached.contents, ['0 0 exponent', '0 1 exponent']);
    assert.equal(cached.decisions.takeLower(second), 'taken');
    cached.decisions.giveUpLower(second);
    assert.equal(cached.decisions.hasLower(second), false);
    cached.decisions.endUse(second);
    assert.equal(cached.lower.size, 0);
  });

  it('keeps what is in use, and leaves other experts to the working slots meanwhile', () => {
    const cached = new Cached(2 * UPPER);
    const uses = [cached.begin(0), cached.begin(1)];
    const [other = assert.fail()] = cached.decisions.acquire(0, [2]);
    assert.deepEqual([other.state, other.fullEntry], ['missing', null]);
    cached.decisions.endUse(other);
    for (const use of uses) cached.decisions.endUse(use);
    assert.equal(typeof cached.use(2).fullEntry, 'number');
    assert.deepEqual(cached.decisions.takeLeft(), [uses[0]?.fullEntry]);
    assert.deepEqual(cached.decisions.takeLeft(), []);
  });

  it('caches nothing of an expert whose load failed, and its upper slices where that of the lower ones failed', () => {
    const cached = new Cached(3 * UPPER);
    const [lost = assert.fail()] = cached.decisions.acquire(0, [0]);
    cached.decisions.loaded(lost, { loaded: false, cached: NOTHING });
    cached.decisions.endUse(lost);
    const half = cached.begin(1);
    cached.decisions.takeLower(half);
    cached.decisions.lowerLoaded(half, false);
    cached.decisions.endUse(half);
    assert.deepEqual(cached.contents, ['0 1 exponent']);
    assert.equal(cached.lower.size, 0);
  });

  it('lets experts of layers go that the worker serves no more, once they are not in use', () => {
    const cached = new Cached(4 * UPPER);
    cached.use(0, 0);
    cached.use(0, 1);
    const used = cached.begin(1, 1);
    cached.serve([0]);
    assert.deepEqual(cached.contents, ['0 0 exponent', '1 1 exponent']);
    cached.decisions.endUse(used);
    assert.deepEqual(cached.contents, ['0 0 exponent']);
    assert.equal(cached.use(3, 1).fullEntry, null);
  });

  it('tells main of the experts with upper slices once', () => {
    const cached = new Cached(4 * UPPER);
    assert.equal(cached.cache.takeChanged(0), null);
    cached.useBoth(5);
    cached.use(2);
    assert.deepEqual(cached.cache.takeChanged(0), [2, 5]);
    assert.equal(cached.cache.takeChanged(0), null);
    cached.cache.forgetReported();
    assert.deepEqual(cached.cache.takeChanged(0), [2, 5]);
  });

  it('shows both slices as full experts, and upper ones alone as their part', () => {
    const cached = new Cached(2 * UPPER + LOWER);
    cached.useBoth(0);
    cached.use(1);
    const status = cached.cache.status({ ...perState(() => 0), full: 3, exponent: 2, missing: 1 }, 0);
    const [policy, bytes, misses] = [status.policy, status.bytes, status.misses];
    assert.deepEqual([policy, bytes, misses], ['sliced', 2 * UPPER + LOWER, 1]);
    assert.deepEqual([status.kept.full, status.kept.exponent], [1, 1]);
    assert.deepEqual([status.capacities.full, status.capacities.exponent], [1, 2]);
    assert.deepEqual([status.hits.full, status.hits.exponent], [3, 2]);
  });

  it('gives memory to others in the same order, and takes it back', () => {
    const cached = new Cached(3 * UPPER + 2 * LOWER, true);
    cached.useBoth(0);
    cached.useBoth(1);
    cached.use(2);
    assert.equal(cached.usedBytes, 3 * UPPER + 2 * LOWER, 'one more slot would not fit');
    assert.equal(cached.decisions.lend(), true);
    assert.ok(cached.usedBytes <= 2 * UPPER + LOWER);
    assert.deepEqual(cached.contents, ['0 1 exponent', '0 2 exponent'], 'the place for a lower slice stays');
    const used = cached.begin(2);
    assert.equal(cached.decisions.lend(), false, 'it is in use');
    cached.decisions.endUse(used);
    assert.equal(cached.decisions.lend(), true);
    assert.deepEqual(cached.contents, []);
    assert.equal(cached.use(4).fullEntry, null);
    cached.decisions.takeBack(3);
    assert.equal(cached.usedBytes, 5 * UPPER, 'all that may be held is held');
    assert.equal(typeof cached.use(4).fullEntry, 'number');
  });

  it('says so when the device refuses memory, and stays as it is', () => {
    const cached = new Cached(2 * UPPER + LOWER);
    const use = cached.begin(0);
    cached.refuses = true;
    const refusal = cached.decisions.takeLower(use);
    assert.ok(refusal instanceof OdmoeError && refusal.code === 'DEVICE_OUT_OF_MEMORY');
    cached.refuses = false;
    assert.equal(cached.decisions.takeLower(use), 'taken');
    cached.decisions.endUse(use);
  });

  it('gives up slices that nobody uses where others have taken its memory, rather than fail', () => {
    const cached = new Cached(3 * UPPER + LOWER, true);
    cached.use(0);
    cached.use(1);
    const use = cached.begin(2);
    cached.takenBytes = UPPER;
    assert.equal(cached.decisions.takeLower(use), 'taken');
    assert.deepEqual(cached.contents, ['0 1 exponent', '0 2 exponent']);
    cached.decisions.endUse(use);
  });

  it('never holds more memory than it has, nor a lower slice without its upper one, whatever is used', () => {
    const steps = fc.array(
      fc.record({
        kind: fc.constantFrom('use', 'useBoth', 'begin', 'beginBoth', 'end', 'lend', 'back', 'refuse'),
        of: fc.nat(EXPERTS - 1),
        layer: fc.nat(1),
      }),
      { maxLength: 60 },
    );
    fc.assert(
      fc.property(steps, fc.integer({ min: UPPER, max: 60 }), fc.boolean(), (script, keptBytes, isShared) => {
        const cached = new Cached(keptBytes, isShared);
        const open: CacheUse[] = [];
        for (const { kind, of, layer } of script) {
          cached.refuses = kind === 'refuse';
          const isOpen = open.some((use) => use.layer === layer && use.expert === of);
          if (kind === 'end') for (const use of open.splice(0, 1)) cached.decisions.endUse(use);
          else if (kind === 'lend') cached.decisions.lend();
          else if (kind === 'back') cached.decisions.takeBack(1);
          else if (!isOpen) {
            const use = cached.begin(of, layer);
            if (kind.endsWith('Both') && use.fullEntry !== null && cached.decisions.takeLower(use) === 'taken') {
              cached.decisions.lowerLoaded(use, true);
            }
            if (kind.startsWith('begin')) open.push(use);
            else cached.decisions.endUse(use);
          }
          const full = cached.decisions.cached().filter(({ state }) => state === 'full');
          assert.equal(cached.lower.size, full.length);
          const kept = cached.decisions.bytes('upper') + cached.decisions.bytes('lower');
          assert.ok(kept <= cached.decisions.capacityBytes, `${kept} of ${cached.decisions.capacityBytes} bytes`);
          for (const use of open) {
            if (use.fullEntry !== null)
              assert.ok(cached.decisions.isInSlot(use.layer, use.expert), 'a pinned one left');
          }
        }
      }),
      { numRuns: 500 },
    );
  });
});

describe('the plan of a cache of slices', () => {
  const sizes = { upperBytes: UPPER, lowerBytes: LOWER, experts: 16 };
  const plan = (cacheBytes: number, lowerBytes: number | null = LOWER, slots = 2) =>
    planSlicedCache({ slots, cacheBytes }, { ...sizes, lowerBytes });

  it('leaves places for the lower slices in use, and takes no more memory than all slices need', () => {
    assert.deepEqual(plan(30), {
      upperBytes: UPPER,
      lowerBytes: LOWER,
      hasLower: true,
      slots: 7,
      lowerPlaces: 2,
      bytes: 30,
    });
    assert.deepEqual([plan(1000).slots, plan(1000).bytes], [16, 16 * (UPPER + LOWER) + 2 * LOWER]);
    assert.deepEqual([plan(30, null).lowerPlaces, plan(30, null).slots], [0, 7]);
    assert.equal(plan(1000, null).bytes, 16 * UPPER);
  });

  it('is no cache where not one expert fits', () => {
    assert.equal(plan(UPPER + LOWER - 1).slots, 0);
    assert.equal(plan(UPPER + LOWER).slots, 1);
    assert.equal(plan(0).slots, 0);
  });
});
