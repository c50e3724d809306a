import assert from 'node:assert/strict';
import fc from 'fast-check';
import { USUAL_RULES } from '../../shared/settings/logical-rules.js';
import { isCritical, renormalizedWeights } from '../../shared/decisions/slices/critical-executions.js';
import {
  criticalField,
  expectedRule,
  planReadings,
  precisionRule,
  readsLowerSlices,
  type PrecisionRule,
  type MeasuredTheta,
} from '../../shared/decisions/slices/plan-readings.js';

const MEASURED: readonly MeasuredTheta[] = [
  { critical: 0.1, theta: 0.9 },
  { critical: 0.3, theta: 0.7 },
  { critical: 0.5, theta: 0.5 },
];

const critical = (share: number): Parameters<typeof precisionRule>[0] => ({
  kind: 'critical',
  split: 'sliced84',
  share,
});

function ruleOf(share: number, measured: readonly MeasuredTheta[]): PrecisionRule {
  const found = precisionRule(critical(share), measured);
  return 'rule' in found ? found.rule : assert.fail(found.problem);
}

function problemOf(quality: Parameters<typeof precisionRule>[0], measured: readonly MeasuredTheta[] | null): string {
  const found = precisionRule(quality, measured);
  return 'problem' in found ? found.problem : assert.fail('no problem');
}

describe('the rule by which executions read slices', () => {
  it('needs no threshold where all executions are alike', () => {
    for (const kind of ['high', 'low'] as const) {
      assert.deepEqual(precisionRule({ kind, split: 'sliced42' }, null), { rule: { kind } });
    }
    assert.deepEqual(
      [{ kind: 'high' } as const, { kind: 'low' } as const, { kind: 'critical', theta: 1 } as const].map(
        readsLowerSlices,
      ),
      [true, false, true],
    );
  });

  it('takes the measured threshold whose share is nearest to the wanted one, as FP32', () => {
    assert.deepEqual(ruleOf(0.3, MEASURED), { kind: 'critical', theta: Math.fround(0.7) });
    assert.deepEqual(ruleOf(0.27, MEASURED), { kind: 'critical', theta: Math.fround(0.7) });
    assert.deepEqual(ruleOf(0.55, MEASURED), { kind: 'critical', theta: 0.5 });
  });

  it('takes no threshold whose share is more than twice the wanted one, or less than half of it', () => {
    const least = [{ critical: 0.05, theta: 0.9 }];
    assert.deepEqual(ruleOf(0.025, least), { kind: 'critical', theta: Math.fround(0.9) });
    assert.match(problemOf(critical(0.02), least), /near to critical=0\.02 .* lists 0\.05/);
    assert.match(problemOf(critical(0.05), [{ critical: 0.02, theta: 0.9 }]), /near to critical=0\.05/);
  });

  it('takes the threshold nearest to a share of 0.3 for a logical cache, however far it is', () => {
    const rules = {
      cacheBytes: 1e9,
      missShare: 0.05,
      lowerFetch: 'background',
      routing: { kind: 'cache-prior', lambda: 0.4, kept: 1 },
    } as const;
    const cached = { kind: 'cached', split: 'sliced63', ...rules } as const;
    const rule = (theta: number): PrecisionRule => ({ kind: 'cached', theta, ...rules });
    assert.deepEqual(precisionRule(cached, MEASURED), { rule: rule(Math.fround(0.7)) });
    assert.deepEqual(precisionRule(cached, [{ critical: 0.9, theta: 0.5 }]), { rule: rule(0.5) });
    assert.equal(readsLowerSlices(rule(0.5)), true);
    assert.deepEqual(expectedRule(rule(0.5)), { kind: 'critical', theta: 0.5 });
    assert.deepEqual(criticalField(rule(0.5), [3]), { critical: [3] });
  });

  it('takes the higher of two thresholds that are equally near', () => {
    const equal = [
      { critical: 0.35, theta: 0.6 },
      { critical: 0.25, theta: 0.8 },
    ];
    assert.deepEqual(ruleOf(0.3, equal), { kind: 'critical', theta: Math.fround(0.8) });
    assert.deepEqual(ruleOf(0.3, equal.toReversed()), { kind: 'critical', theta: Math.fround(0.8) });
  });

  it('is refused with a way out where no measured share is near, or none was measured', () => {
    assert.match(
      problemOf(critical(0.4), MEASURED),
      /near to critical=0\.4 .* lists 0\.1, 0\.3, 0\.5: give one of these/,
    );
    assert.match(
      problemOf(critical(0.3), null),
      /was measured .*"odmoe pack PACK PACK --slices 8,4", or give sliced\(8,4\) or sliced\(8,4,low\)$/,
    );
    assert.match(problemOf(critical(0.3), []), /no threshold .* as was measured: give sliced\(8,4\) or sliced/);
    const cached = {
      kind: 'cached',
      split: 'sliced63',
      cacheBytes: 1e9,
      missShare: 0.05,
      ...USUAL_RULES,
    } as const;
    assert.match(problemOf(cached, null), /no threshold .*--slices 6,3", or give sliced\(6,3\) or sliced\(6,3,low\)$/);
    assert.match(problemOf(cached, []), /no threshold .* as was measured/);
  });
});

describe('the readings of the executions of a layer', () => {
  const weights = Float32Array.of(0.6, 0.2, 0.3, 0.3, 0, 0);

  it('are both slices, or the upper slice alone, for all of them', () => {
    assert.deepEqual(planReadings({ kind: 'high' }, weights, 2), Array(6).fill('both'));
    assert.deepEqual(planReadings({ kind: 'low' }, weights, 2), Array(6).fill('upperCentred'));
  });

  it('are both slices for the critical ones', () => {
    const upper = 'upperCentred';
    assert.deepEqual(planReadings({ kind: 'critical', theta: 0.5 }, weights, 2), [
      'both',
      upper,
      'both',
      'both',
      upper,
      upper,
    ]);
    assert.deepEqual(planReadings({ kind: 'critical', theta: 0.51 }, weights, 2), [
      'both',
      ...Array<string>(5).fill(upper),
    ]);
  });

  it('depend on no other row', () => {
    const row = fc.array(fc.float({ min: 0, max: 1, noNaN: true }), { minLength: 3, maxLength: 3 });
    fc.assert(
      fc.property(
        fc.array(row, { minLength: 1, maxLength: 10 }),
        fc.float({ min: 0, max: 1, noNaN: true }),
        (rows, theta) => {
          const rule = { kind: 'critical', theta } as const;
          const alone = rows.flatMap((one) => planReadings(rule, Float32Array.from(one), 3));
          assert.deepEqual(planReadings(rule, Float32Array.from(rows.flat()), 3), alone);
          const renormalized = renormalizedWeights(Float32Array.from(rows.flat()), 3);
          assert.deepEqual(
            alone.map((reading) => reading === 'both'),
            Array.from(renormalized, (weight) => isCritical(weight, theta)),
          );
        },
      ),
    );
  });
});
