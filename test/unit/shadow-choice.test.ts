import assert from 'node:assert/strict';
import { join } from 'node:path';
import fc from 'fast-check';
import { chooseShadowForm, memoryForShadow, shadowBytes } from '../../engine/loading/choose-shadow-form.js';
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

const CANDIDATES = [
  { precision: 'nf4', bytes: 5 * GIB },
  { precision: 'sliced(8,4)', bytes: 9 * GIB },
  { precision: 'sliced(4,2,low)', bytes: 3 * GIB },
] as const;

describe('the choice of a shadow by its memory', () => {
  it('is the largest form that leaves a tenth of the memory, and else the smallest', () => {
    const chosen = (gib: number): unknown => chooseShadowPrecision(CANDIDATES, gib * GIB);
    assert.deepEqual(chosen(10), { precision: 'sliced(8,4)', reason: 'the largest form that fits 10 GiB' });
    assert.deepEqual(chosen(9.99), { precision: 'nf4', reason: 'the largest form that fits 9.99 GiB' });
    assert.deepEqual(chosen(3.5), { precision: 'sliced(4,2,low)', reason: 'the largest form that fits 3.5 GiB' });
    assert.deepEqual(chosen(1), { precision: 'sliced(4,2,low)', reason: 'the smallest form, though none fits 1 GiB' });
  });

  it('never takes more than fits while a form fits, nor less than with less memory', () => {
    const bytes = fc.integer({ min: 1, max: 1000 });
    fc.assert(
      fc.property(fc.array(bytes, { minLength: 8, maxLength: 8 }), bytes, bytes, (sizes, one, other) => {
        const candidates = AUTO_PRECISIONS.map((precision, at) => ({ precision, bytes: sizes[at] ?? 0 }));
        const bytesFor = (memory: number): number => {
          const { precision } = chooseShadowPrecision(candidates, memory);
          return candidates.find((candidate) => candidate.precision === precision)?.bytes ?? NaN;
        };
        if (Math.min(...sizes) <= one * 0.9) assert.ok(bytesFor(one) <= one * 0.9);
        assert.ok(bytesFor(Math.min(one, other)) <= bytesFor(Math.max(one, other)));
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
    const chosen = (memoryBytes: number): string => chooseShadowForm(source, 'projections', memoryBytes).precision;
    assert.equal(chosen(GIB), 'sliced(8,4)');
    for (const precision of AUTO_PRECISIONS) {
      const found = chosen(bytesOf(precision) / 0.9 + 1);
      assert.equal(bytesOf(found as typeof precision), bytesOf(precision));
    }
    assert.equal(chosen(1000), 'sliced(4,2,low)');
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
    memoryForShadow({
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
