import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  assumedInclusionProbabilities,
  fitSelectionProbabilities,
  inclusionProbabilities,
} from '../../shared/decisions/caching/selection-model.js';
import { ExpectedMakespan } from '../../shared/decisions/caching/expected-makespan.js';
import { hitDistribution } from '../../shared/decisions/caching/hit-distribution.js';

function* subsets(count: number): Generator<number[]> {
  for (let mask = 0; mask < 2 ** count; mask += 1) {
    yield Array.from({ length: count }, (_, index) => index).filter((index) => (mask >> index) & 1);
  }
}

function probabilityOf(chosen: readonly number[], selection: ArrayLike<number>): number {
  return Array.from(selection).reduce((product, q, index) => product * (chosen.includes(index) ? q : 1 - q), 1);
}

/** Inclusion probabilities by enumerating every set of exactly k. */
function enumeratedInclusion(selection: ArrayLike<number>, k: number): number[] {
  const inclusion = new Array<number>(selection.length).fill(0);
  let total = 0;
  for (const chosen of subsets(selection.length)) {
    if (chosen.length !== k) continue;
    const probability = probabilityOf(chosen, selection);
    total += probability;
    for (const index of chosen) inclusion[index] = (inclusion[index] ?? 0) + probability;
  }
  return inclusion.map((probability) => probability / total);
}

const near = (left: number, right: number, tolerance: number): boolean => Math.abs(left - right) <= tolerance;

/** Weights with which k experts are activated: many orders of magnitude apart, some zero. */
const weightLists = fc.array(
  fc.oneof(
    fc.double({ min: 1e-6, max: 1, noNaN: true }),
    fc.constant(0),
    fc.constant(1),
    fc.double({ min: 0.9999, max: 1, noNaN: true }),
  ),
  { minLength: 1, maxLength: 12 },
);

describe('fitSelectionProbabilities (appendix D)', () => {
  it('reproduces inclusion probabilities to 1e-9, by enumeration of all sets', () => {
    fc.assert(
      fc.property(weightLists, fc.double({ min: 0, max: 1, noNaN: true }), (weights, share) => {
        const positive = weights.filter((weight) => weight > 0).length;
        const k = Math.round(share * positive);
        const inclusion = assumedFrom(weights, k);
        const selection = fitSelectionProbabilities(inclusion);
        for (const q of selection) assert.ok(q >= 0 && q <= 1);
        enumeratedInclusion(selection, k).forEach((found, index) => {
          assert.ok(near(found, inclusion[index] ?? 0, 1e-9), `${found} for ${inclusion[index]}`);
        });
      }),
      { numRuns: 300 },
    );
  });

  it('handles as many experts nearly certain as are activated', () => {
    for (const most of [1e3, 1e4, 1e5, 1e6]) {
      const inclusion = inclusionProbabilities([[most, most, most - 1, 0, 0, 0, 0, 0]], 3);
      assert.ok(inclusion !== null);
      const found = enumeratedInclusion(fitSelectionProbabilities(inclusion), 3);
      for (const [i, wanted] of inclusion.entries()) assert.ok(near(found[i] ?? 0, wanted, 1e-9), `${most}: ${i}`);
    }
  });

  it('handles none and all', () => {
    assert.deepEqual([...fitSelectionProbabilities([0, 0, 0])], [0, 0, 0]);
    assert.deepEqual([...fitSelectionProbabilities([1, 1])], [1, 1]);
    assert.deepEqual([...fitSelectionProbabilities([1, 0, 1])], [1, 0, 1]);
  });

  it('gives equal experts equal probabilities', () => {
    const selection = fitSelectionProbabilities(new Float64Array(256).fill(8 / 256));
    assert.ok(selection.every((q) => near(q, 8 / 256, 1e-9)));
  });

  it('refuses an invalid list of inclusion probabilities', () => {
    assert.throws(() => fitSelectionProbabilities([0.5, 0.2]), /sum to a whole number/);
    assert.throws(() => fitSelectionProbabilities([1.5, 0.5]), /lie in \[0, 1\]/);
    assert.throws(() => fitSelectionProbabilities([Number.NaN, 1]), /lie in/);
  });
});

/** k shared out in proportion to weights, none above 1. */
function assumedFrom(weights: readonly number[], k: number): Float64Array {
  const shares = new Float64Array(weights.length);
  const open = new Set([...weights.keys()].filter((index) => (weights[index] ?? 0) > 0));
  let left = k;
  for (;;) {
    const total = [...open].reduce((sum, index) => sum + (weights[index] ?? 0), 0);
    const full = [...open].filter((index) => ((weights[index] ?? 0) * left) / total >= 1);
    if (full.length === 0) {
      for (const index of open) shares[index] = ((weights[index] ?? 0) * left) / total;
      return shares;
    }
    for (const index of full) {
      shares[index] = 1;
      open.delete(index);
      left -= 1;
    }
  }
}

describe('inclusion probabilities', () => {
  it('are given by rank, whichever expert holds it, and sum to k', () => {
    const found = inclusionProbabilities(
      [
        [10, 0, 30, 20],
        [0, 60, 40, 20],
      ],
      2,
    );
    assert.ok(found !== null);
    assert.ok(
      near(
        found.reduce((sum, each) => sum + each, 0),
        2,
        1e-12,
      ),
    );
    assert.deepEqual(
      [...found],
      [...found].sort((left, right) => right - left),
    );
    const one = inclusionProbabilities([[30, 20, 10, 0]], 2);
    assert.ok(near(found[0] ?? 0, ((one?.[0] ?? 0) + (2 * 60.5) / 122) / 2, 1e-12));
  });

  it('are unknown without counts, and never above 1', () => {
    assert.equal(inclusionProbabilities([[0, 0], []], 1), null);
    const found = inclusionProbabilities([[1_000_000, 5, 5]], 2);
    assert.equal(found?.[0], 1);
    assert.deepEqual([...assumedInclusionProbabilities(4, 2, 0)], [0.5, 0.5, 0.5, 0.5]);
  });
});

const probabilities = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 9 });

describe('hitDistribution (Algorithm 2)', () => {
  it('equals the enumeration of all choices', () => {
    fc.assert(
      fc.property(probabilities, (selection) => {
        const expected = new Array<number>(selection.length + 1).fill(0);
        for (const chosen of subsets(selection.length)) {
          expected[chosen.length] = (expected[chosen.length] ?? 0) + probabilityOf(chosen, selection);
        }
        const found = hitDistribution(selection);
        assert.equal(found.length, expected.length);
        found.forEach((probability, hits) => assert.ok(near(probability, expected[hits] ?? 0, 1e-12)));
      }),
    );
  });

  it('may be truncated above', () => {
    const selection = [0.2, 0.9, 0.4, 0.5];
    assert.deepEqual([...hitDistribution(selection, 2)], [...hitDistribution(selection)].slice(0, 3));
  });
});

describe('joint probability of hit patterns (section 3.4)', () => {
  it('equals the enumeration of all sets of k experts, and sums to 1', () => {
    const capacitiesArbitrary = fc.record({
      full: fc.nat(2),
      compressed: fc.nat(2),
      signMantissa: fc.nat(2),
      exponent: fc.nat(2),
    });
    const selections = fc.array(fc.double({ min: 0.01, max: 0.99, noNaN: true }), { minLength: 8, maxLength: 9 });
    fc.assert(
      fc.property(selections, capacitiesArbitrary, fc.nat(5), (selection, capacities, k) => {
        const expected = enumeratedPatterns(selection, capacities, k);
        let sum = 0;
        let seen = 0;
        new ExpectedMakespan(selection, k, () => 0).forEachPattern(capacities, (hits, probability) => {
          assert.ok(near(probability, expected.get(patternKey(hits)) ?? 0, 1e-9));
          sum += probability;
          seen += 1;
        });
        assert.ok(near(sum, 1, 1e-9));
        assert.equal(seen, expected.size);
      }),
      { numRuns: 50 },
    );
  });
});

const patternKey = ({ full, compressed, signMantissa, exponent }: PoolCapacities): string =>
  `${full} ${compressed} ${signMantissa} ${exponent}`;

function enumeratedPatterns(selection: readonly number[], capacities: PoolCapacities, k: number): Map<string, number> {
  const ends = [capacities.full, capacities.compressed, capacities.signMantissa, capacities.exponent];
  ends.forEach((capacity, index) => (ends[index] = capacity + (ends[index - 1] ?? 0)));
  const patterns = new Map<string, number>();
  let total = 0;
  for (const chosen of subsets(selection.length)) {
    if (chosen.length !== k) continue;
    const hits = ends.map((end, index) => chosen.filter((rank) => rank < end && rank >= (ends[index - 1] ?? 0)).length);
    const probability = probabilityOf(chosen, selection);
    total += probability;
    patterns.set(hits.join(' '), (patterns.get(hits.join(' ')) ?? 0) + probability);
  }
  for (const [key, probability] of patterns) patterns.set(key, probability / total);
  return patterns;
}
