import assert from 'node:assert/strict';
import fc from 'fast-check';
import { formatLine } from '../../cli/output/format-line.js';
import { formatShares } from '../../shared/model/format-shares.js';
import type { ExpertSource, Split, TensorSource } from '../../shared/model/tensor-source.js';

function matrix(split: Split, rows: number, columns: number): TensorSource {
  return { rows, columns, split, chunks: [], view: null };
}

function expert(gate: Split, up: Split, down: Split, rows = 256): ExpertSource {
  const [one, two, three] = [matrix(gate, rows, 512), matrix(up, rows, 512), matrix(down, 512, rows)];
  return { gate: one, up: two, down: three, biases: null };
}

describe('the formats of experts', () => {
  it('have the shares of the weights, the largest first, and not those of the matrices', () => {
    const experts = [expert('q4_k', 'q4_k', 'q6_k'), expert('q4_k', 'q4_k', 'q4_k')];
    assert.deepEqual(formatShares(experts), [
      { format: 'q4_k', share: 5 / 6 },
      { format: 'q6_k', share: 1 / 6 },
    ]);
    const unequal = [expert('q4_k', 'q4_k', 'q4_k', 256), expert('q8_0', 'q8_0', 'q8_0', 768)];
    assert.deepEqual(formatShares(unequal), [
      { format: 'q8_0', share: 0.75 },
      { format: 'q4_k', share: 0.25 },
    ]);
  });

  it('count splits of one format as one, and none of no experts', () => {
    assert.deepEqual(formatShares([expert('bf16-e8-sm8', 'none-bf16', 'bf16-e8-sm8')]), [{ format: 'bf16', share: 1 }]);
    assert.deepEqual(formatShares([]), []);
  });

  it('have shares that sum to one, whatever the experts are', () => {
    const split = fc.constantFrom<Split>('q4_k', 'q6_k', 'none-bf16', 'fp8', 'mxfp4');
    const experts = fc.array(
      fc.tuple(split, split, split, fc.integer({ min: 1, max: 9 })).map(([gate, up, down, rows]) => {
        return expert(gate, up, down, rows);
      }),
      { minLength: 1, maxLength: 8 },
    );
    fc.assert(
      fc.property(experts, (drawn) => {
        const formats = formatShares(drawn);
        const sum = formats.reduce((total, { share }) => total + share, 0);
        assert.ok(Math.abs(sum - 1) < 1e-9, `${sum}`);
        assert.equal(new Set(formats.map(({ format }) => format)).size, formats.length);
        assert.deepEqual(
          formats.map(({ share }) => share),
          formats.map(({ share }) => share).sort((a, b) => b - a),
        );
      }),
    );
  });

  it('stand in words, where there are several', () => {
    const q4 = { format: 'q4_k', share: 0.8333 } as const;
    const q6 = { format: 'q6_k', share: 0.1667 } as const;
    assert.equal(formatLine({ shippedFormat: 'mixed', expertFormats: [q4, q6] }), 'q4_k 83 %, q6_k 17 %');
    assert.equal(formatLine({ shippedFormat: 'q4_k', expertFormats: [{ ...q4, share: 1 }] }), 'q4_k');
    // A pack of slices only has no experts to count.
    assert.equal(formatLine({ shippedFormat: 'mixed', expertFormats: [] }), 'mixed');
    const rare = [
      { ...q4, share: 0.9999 },
      { ...q6, share: 0.0001 },
    ];
    assert.equal(formatLine({ shippedFormat: 'mixed', expertFormats: rare }), 'q4_k 99 %, q6_k 1 %');
  });
});
