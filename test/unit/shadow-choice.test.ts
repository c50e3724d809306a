import assert from 'node:assert/strict';
import { join } from 'node:path';
import fc from 'fast-check';
import { deviceMemoryLeft } from '../../engine/devices/device-memory-left.js';
import { chooseShadowForm, shadowBytes } from '../../engine/loading/choose-shadow-form.js';
import { shadowForm } from '../../engine/loading/shadow-form.js';
import type { CudaStatus, DeviceInfo } from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { AUTO_PRECISIONS, chooseShadowPrecision } from '../../shared/decisions/slices/choose-shadow-form.js';
import { PRECISIONS } from '../../shared/settings/setting-choices.js';
import { loadShadowModel } from '../../shadow-node/predictor/shadow-model.js';
import { openTestDevice } from './native-test-model.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const GIB = 1024 ** 3;
const ANY_FORM = { onlySlices: null, recall: null };

const CANDIDATES = [
  { precision: 'nf4', bytes: 5 * GIB, recall: null },
  { precision: 'sliced(8,4)', bytes: 9 * GIB, recall: null },
  { precision: 'sliced(4,2,low)', bytes: 3 * GIB, recall: null },
] as const;
const MEASURED = [
  { precision: 'nf4', bytes: 5 * GIB, recall: 0.95 },
  { precision: 'sliced(6,3,low)', bytes: 4 * GIB, recall: 0.96 },
  { precision: 'int8', bytes: 8 * GIB, recall: 0.9985 },
  { precision: 'sliced(8,4)', bytes: 9 * GIB, recall: 0.999 },
  { precision: 'sliced(4,2,low)', bytes: 3 * GIB, recall: null },
] as const;

describe('the choice of a shadow by its memory', () => {
  it('is the form that predicts best in nine tenths of the memory, and the smallest of those that predict equally well', () => {
    const chosen = (gib: number): unknown => chooseShadowPrecision(MEASURED, gib * GIB);
    const best = (gib: number, recall: string): string =>
      `predicts best of the forms that fit ${gib} GiB: recall ${recall}`;
    assert.deepEqual(chosen(10), { precision: 'int8', reason: best(10, '0.9985') });
    assert.deepEqual(chosen(8), { precision: 'sliced(6,3,low)', reason: best(8, '0.9600') });
    const unmeasured = 'the largest form that fits 3.5 GiB; recall was not measured';
    assert.deepEqual(chosen(3.5), { precision: 'sliced(4,2,low)', reason: unmeasured });
    assert.deepEqual(chosen(1), { precision: 'sliced(4,2,low)', reason: 'the smallest form, though none fits 1 GiB' });
  });

  it('is the largest form that leaves a tenth of the memory where recall was not measured, and else the smallest', () => {
    const chosen = (gib: number): unknown => chooseShadowPrecision(CANDIDATES, gib * GIB);
    const largest = (gib: number): string => `the largest form that fits ${gib} GiB; recall was not measured`;
    assert.deepEqual(chosen(10), { precision: 'sliced(8,4)', reason: largest(10) });
    assert.deepEqual(chosen(9.99), { precision: 'nf4', reason: largest(9.99) });
    assert.deepEqual(chosen(3.5), { precision: 'sliced(4,2,low)', reason: largest(3.5) });
    assert.deepEqual(chosen(1), { precision: 'sliced(4,2,low)', reason: 'the smallest form, though none fits 1 GiB' });
  });

  it('never takes more than fits while a form fits, nor less than with less memory', () => {
    const bytes = fc.integer({ min: 1, max: 1000 });
    fc.assert(
      fc.property(fc.array(bytes, { minLength: 8, maxLength: 8 }), bytes, bytes, (sizes, one, other) => {
        const candidates = AUTO_PRECISIONS.map((precision, at) => ({ precision, bytes: sizes[at] ?? 0, recall: null }));
        const bytesFor = (memory: number): number => {
          const { precision } = chooseShadowPrecision(candidates, memory);
          return candidates.find((candidate) => candidate.precision === precision)?.bytes ?? NaN;
        };
        if (Math.min(...sizes) <= one * 0.9) assert.ok(bytesFor(one) <= one * 0.9);
        assert.ok(bytesFor(Math.min(one, other)) <= bytesFor(Math.max(one, other)));
      }),
    );
  });

  it('never takes more than fits while a form fits, nor predicts worse with more memory', () => {
    const number = fc.integer({ min: 1, max: 1000 });
    const form = fc.record({ bytes: number, recall: fc.option(number.map((thousandths) => thousandths / 1000)) });
    fc.assert(
      fc.property(fc.array(form, { minLength: 8, maxLength: 8 }), number, number, (forms, one, other) => {
        const candidates = AUTO_PRECISIONS.map((precision, at) => ({
          precision,
          ...(forms[at] ?? { bytes: 1, recall: null }),
        }));
        const found = (memory: number): (typeof candidates)[number] | undefined => {
          const { precision } = chooseShadowPrecision(candidates, memory);
          return candidates.find((candidate) => candidate.precision === precision);
        };
        const [less, more] = [Math.min(one, other), Math.max(one, other)];
        const fits = (memory: number): boolean => candidates.some(({ bytes }) => bytes <= memory * 0.9);
        if (fits(less)) assert.ok((found(less)?.bytes ?? NaN) <= less * 0.9);
        if (fits(less)) assert.ok((found(less)?.recall ?? -1) <= (found(more)?.recall ?? -1) + 0.001);
      }),
    );
  });

  it('is among INT8, NF4 and all sliced forms', () => {
    assert.deepEqual([...AUTO_PRECISIONS, 'fp16'].sort(), [...PRECISIONS].sort());
  });

  it('counts the weights of every form as a device holds them', async () => {
    const source = await openModelSource(DEMO);
    const device = openTestDevice();
    try {
      for (const precision of PRECISIONS) {
        for (const quantized of ['projections', 'all'] as const) {
          const form = shadowForm(precision);
          const model = await loadShadowModel(device, source, form, quantized);
          const held = model.residentWeights().kinds.reduce((sum, { bytes }) => sum + bytes, 0);
          model.dispose();
          const counted = shadowBytes(source, form, quantized);
          // Norms are counted, though they are no matrices; a device adds some bytes to align a matrix.
          assert.ok(Math.abs(counted / held - 1) < 0.02, `${precision}, ${quantized}: ${counted} for ${held}`);
        }
      }
    } finally {
      device.dispose();
    }
  });

  it('takes smaller forms of a model as memory becomes less', async () => {
    const source = await openModelSource(DEMO);
    const bytesOf = (precision: (typeof PRECISIONS)[number]): number =>
      shadowBytes(source, shadowForm(precision), 'projections');
    const chosen = (memoryBytes: number): string =>
      chooseShadowForm(source, 'projections', ANY_FORM, memoryBytes).precision;
    assert.equal(chosen(GIB), 'sliced(8,4)');
    for (const precision of AUTO_PRECISIONS) {
      const found = chosen(bytesOf(precision) / 0.9 + 1);
      assert.equal(bytesOf(found as typeof precision), bytesOf(precision));
    }
    assert.equal(chosen(1000), 'sliced(4,2,low)');
    const recall = [{ precision: 'nf4', recall: 0.9 }] as const;
    assert.equal(chooseShadowForm(source, 'projections', { onlySlices: null, recall }, GIB).precision, 'nf4');
    const upper = { split: 'sliced63', opened: 'upper' } as const;
    const ofUpper = chooseShadowForm(source, 'projections', { onlySlices: upper, recall }, GIB).precision;
    assert.equal(ofUpper, 'sliced(6,3,low)');
    const both = { split: 'sliced63', opened: 'both' } as const;
    const ofBoth = chooseShadowForm(source, 'projections', { onlySlices: both, recall: null }, GIB).precision;
    assert.equal(ofBoth, 'sliced(6,3)');
  });
});

describe('the memory of a shadow', () => {
  const nothing = { usedBytes: 0, budgetBytes: 0 } as DeviceInfo;
  const status = {
    devices: [
      { index: 0, memoryBytes: 7 },
      { index: 1, memoryBytes: 9 },
    ],
  } as CudaStatus;
  const memory = (info: Partial<DeviceInfo>, backend: 'cpu' | 'cuda'): number =>
    deviceMemoryLeft({
      info: { ...nothing, ...info },
      options: { backend, device: 1 },
      cudaStatus: () => status,
      freeHostMemoryBytes: () => 20,
    });

  it("is the rest of its device's budget, else the memory of its GPU, or what the host has free", () => {
    assert.equal(memory({ budgetBytes: 5, usedBytes: 2 }, 'cpu'), 3);
    assert.equal(memory({ budgetBytes: 5, usedBytes: 2 }, 'cuda'), 3);
    assert.equal(memory({ usedBytes: 2 }, 'cuda'), 7);
    assert.equal(memory({ usedBytes: 2 }, 'cpu'), 20);
  });
});
