import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { openTensor } from '../../native/index.js';
import { groupedName } from '../../shared/model/block-formats.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { ChunkLocation, TensorSource } from '../../shared/model/tensor-source.js';
import { packedPlanes, storedPlanes, viewOf, type GroupedForm, type GroupedMatrix } from './repacked-weights.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';

/** Bits of FP16 numbers; BF16 numbers, too. All are finite. */
const SCALE_LIMIT = 0x7000;

interface Drawn {
  form: GroupedForm;
  bits: 4 | 8;
  rows: number;
  groups: number;
  group: number;
  zeros: boolean;
  ordered: boolean;
  seed: number;
}

function matrixOf({ bits, rows, groups, group, zeros, ordered, seed, form }: Drawn): GroupedMatrix {
  const random = new SeededRandom(seed);
  const columns = groups * group;
  const codes = bits === 4 ? 16 : 256;
  // v1 of GPTQ stores a zero point less 1, and -1 is refused.
  const leastZero = form === 'gptq-v1' ? 1 : 0;
  const table = (width: number, draw: () => number): number[][] =>
    Array.from({ length: rows }, () => Array.from({ length: width }, draw));
  const order = Array.from({ length: columns }, (_, column) => Math.floor(column / group));
  for (let i = columns - 1; i > 0 && ordered; i -= 1) {
    const other = random.int(i + 1);
    [order[i], order[other]] = [order[other] ?? 0, order[i] ?? 0];
  }
  return {
    bits,
    rows,
    columns,
    group,
    codes: table(columns, () => random.int(codes)),
    zeros: zeros ? table(groups, () => leastZero + random.int(codes - leastZero)) : null,
    scales: table(groups, () => random.int(SCALE_LIMIT)),
    groups: ordered ? order : null,
  };
}

/** The planes of the split that the matrix becomes. `zeros`: whether the split has zero points. */
async function readPlanes(
  directory: string,
  matrix: GroupedMatrix,
  form: GroupedForm,
  orderBytes: number,
  zeros = matrix.zeros !== null,
): Promise<Uint8Array[]> {
  const { bits, rows, columns, group } = matrix;
  const chunks: ChunkLocation[] = [];
  for (const [plane, bytes] of storedPlanes(matrix, form).entries()) {
    if (bytes.length === 0) continue;
    const path = join(directory, `plane-${plane}`);
    await writeFile(path, bytes);
    const sizes = { offsetBytes: 0, storedBytes: bytes.length, plainBytes: bytes.length };
    chunks.push({ plane, path, ...sizes, codec: 'raw', crc32c: null });
  }
  const split = groupedName({ bits, scales: 'fp16', zeros, group, orderBytes });
  const source: TensorSource = { rows, columns, split, chunks, view: viewOf(rows, columns, { form, split }) };
  const tensor = openTensor(source);
  try {
    // In two steps, so that a later row finds its bits, too.
    const first = Math.floor(rows / 3);
    const parts = [first, rows - first].filter((count) => count > 0);
    const planes: Uint8Array[][] = [];
    for (const count of parts) planes.push(await tensor.read(count));
    return [0, 1].map((plane) => Buffer.concat(planes.map((part) => part[plane] ?? new Uint8Array(0))));
  } finally {
    tensor.dispose();
  }
}

const drawn: fc.Arbitrary<Drawn> = fc
  .record({
    form: fc.constantFrom<GroupedForm>('pack-quantized', 'gptq', 'gptq-v1', 'awq'),
    bits: fc.constantFrom<4 | 8>(4, 8),
    rows: fc.integer({ min: 1, max: 6 }),
    groups: fc.integer({ min: 1, max: 4 }),
    group: fc.constantFrom(32, 64),
    zeros: fc.boolean(),
    ordered: fc.boolean(),
    seed: fc.nat(),
  })
  .map((one) => {
    const awq = one.form === 'awq';
    const words = one.form !== 'pack-quantized';
    const bits = awq ? 4 : one.bits;
    return {
      ...one,
      bits,
      rows: words ? one.rows * 8 : one.rows,
      zeros: awq || one.zeros,
      ordered: !awq && one.ordered && one.groups > 1,
    };
  });

describe('codes in the words of GPTQ, AWQ and compressed-tensors', () => {
  it('are moved into the planes of a pack without a change, for any sizes, zero points and order of columns', async () => {
    await withTemporaryDirectory(async (directory) => {
      await fc.assert(
        fc.asyncProperty(drawn, async (one) => {
          const matrix = matrixOf(one);
          const orderBytes = one.ordered ? Math.ceil((2 * matrix.columns) / matrix.rows) : 0;
          const found = await readPlanes(directory, matrix, one.form, orderBytes);
          const [codes, scales] = packedPlanes(matrix, orderBytes);
          assert.deepEqual(Buffer.from(found[0] ?? []), Buffer.from(codes));
          assert.deepEqual(Buffer.from(found[1] ?? []), Buffer.from(scales));
        }),
        { numRuns: 60 },
      );
    });
  });

  const plain: Drawn = { form: 'gptq', bits: 4, rows: 8, groups: 2, group: 32, zeros: true, ordered: false, seed: 1 };

  it('are refused where a group has more columns than the others', async () => {
    await withTemporaryDirectory(async (directory) => {
      const matrix = { ...matrixOf(plain), groups: Array.from({ length: 64 }, (_, column) => (column < 33 ? 0 : 1)) };
      await assert.rejects(readPlanes(directory, matrix, 'gptq', 16), { code: 'MODEL_CORRUPT' });
      await assert.rejects(readPlanes(directory, matrix, 'gptq', 0), { code: 'MODEL_CORRUPT' });
    });
  });

  it('are refused where a column has a group that does not exist', async () => {
    await withTemporaryDirectory(async (directory) => {
      const matrix = { ...matrixOf(plain), groups: Array.from({ length: 64 }, () => 2) };
      await assert.rejects(readPlanes(directory, matrix, 'gptq', 16), { code: 'MODEL_CORRUPT' });
    });
  });

  it('are refused where codes that are said to be symmetric have another zero point, and where one is stored as -1', async () => {
    await withTemporaryDirectory(async (directory) => {
      const odd = { ...matrixOf(plain), zeros: Array.from({ length: 8 }, (_, row) => [8, row === 5 ? 7 : 8]) };
      await assert.rejects(readPlanes(directory, odd, 'gptq', 0, false), { code: 'MODEL_CORRUPT' });
      const none = { ...matrixOf(plain), zeros: Array.from({ length: 8 }, () => [8, 0]) };
      await assert.rejects(readPlanes(directory, none, 'gptq-v1', 0), { code: 'MODEL_CORRUPT' });
    });
  });
});
