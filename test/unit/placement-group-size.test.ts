import assert from 'node:assert/strict';
import fc from 'fast-check';
import { plainGlu } from '../../engine/emulation/plain-shape.js';
import {
  chooseGroupSize,
  lookAheadSlots,
  meanWeightBytes,
  nominalLayerCosts,
  type LayerCosts,
} from '../../shared/decisions/placement/group-size.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { automaticSlots, AUTOMATIC_SLOTS_BYTES } from '../../engine/planning/plan-slots.js';

const BF16 = meanWeightBytes([{ format: 'bf16', share: 1 }]);
const MIXTRAL = nominalLayerCosts({ hiddenSize: 4096, expert: plainGlu(14_336) }, BF16);
const QWEN3_30B = nominalLayerCosts({ hiddenSize: 2048, expert: plainGlu(768) }, BF16);

const sizeOf = (workers: number, expertsPerToken: number, costs: LayerCosts): number =>
  chooseGroupSize(workers, expertsPerToken, costs).size;

function layerMs(workers: number, expertsPerToken: number, costs: LayerCosts, size: number): number {
  const runMs = Math.ceil(expertsPerToken / size) * costs.executeMs + size * costs.reachMs;
  return Math.max(runMs, (expertsPerToken * costs.loadMs) / workers);
}

describe('placement: the chosen group size', () => {
  it('gives no more time than any other size', () => {
    const time = fc.double({ min: 0.01, max: 50, noNaN: true });
    const costs = fc.record({ executeMs: time, reachMs: time, loadMs: time });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 16 }), costs, (workers, k, cost) => {
        const size = sizeOf(workers, k, cost);
        assert.ok(size >= 1 && size <= Math.min(workers, k));
        for (let other = 1; other <= Math.min(workers, k); other += 1) {
          assert.ok(layerMs(workers, k, cost, size) <= layerMs(workers, k, cost, other), `${size} or ${other}`);
        }
      }),
    );
  });

  it('equals a token’s experts where loads decide, and is smaller where messages to workers do', () => {
    assert.deepEqual([sizeOf(8, 2, MIXTRAL), sizeOf(2, 2, MIXTRAL), sizeOf(1, 2, MIXTRAL)], [2, 2, 1]);
    assert.equal(sizeOf(8, 8, QWEN3_30B), 8);
    assert.equal(sizeOf(3, 8, QWEN3_30B), 3);
    assert.equal(sizeOf(64, 8, QWEN3_30B), 4);
    assert.equal(sizeOf(8, 8, { executeMs: 0.1, reachMs: 1, loadMs: 0 }), 1);
  });

  it('counts the formats of experts by their shares', () => {
    const shares = [
      { format: 'q4_k', share: 0.75 },
      { format: 'q6_k', share: 0.25 },
    ] as const;
    const bytes = (0.75 * 144 + 0.25 * 210) / 256;
    assert.deepEqual(meanWeightBytes(shares), { storedBytes: bytes, heldBytes: bytes });
    assert.deepEqual(BF16, { storedBytes: 1.5, heldBytes: 2 });
  });

  it('makes one group where eight workers serve eight experts a token, and gives the reason', () => {
    const workers = Array.from({ length: 8 }, (_, index) => ({ id: `w${index}`, address: '', slots: 2 }));
    const sizes = { layers: 48, experts: 128, expertsPerToken: 8 };
    const placement = planPlacement({ epoch: 1, workers, ...sizes, groupSize: 'auto', costs: QWEN3_30B });
    assert.deepEqual(
      placement.groups.map(({ workerIds }) => workerIds.length),
      [8],
    );
    assert.match(chooseGroupSize(8, 8, QWEN3_30B).reason, /executing 1 of 8 experts each and reaching 8 .* loading/);
  });
});

describe('worker: the automatic number of slots', () => {
  const MIB = 1024 * 1024;
  const UNKNOWN = { groupSize: 'auto', workers: null } as const;

  it('is enough to load a layer’s experts while another’s are executed', () => {
    assert.equal(lookAheadSlots(8, 8), 2);
    assert.equal(lookAheadSlots(8, 3), 6);
    assert.equal(automaticSlots(8, UNKNOWN, 10 * MIB), 8);
    assert.equal(automaticSlots(2, UNKNOWN, MIB), 2);
  });

  it('is smaller where experts are large, but as large as a group of that size needs', () => {
    assert.equal(automaticSlots(2, UNKNOWN, 352 * MIB), 2);
    assert.equal(automaticSlots(8, UNKNOWN, 44 * MIB), Math.floor(AUTOMATIC_SLOTS_BYTES / (44 * MIB)));
    assert.equal(automaticSlots(8, { groupSize: 2, workers: null }, 352 * MIB), 8);
    assert.equal(automaticSlots(8, { groupSize: 'auto', workers: 3 }, 44 * MIB), 6);
    assert.equal(automaticSlots(2, { groupSize: 'auto', workers: 1 }, 352 * MIB), 4);
  });
});
