import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { TensorSource } from '../../shared/model/tensor-source.js';
import { tinyTensors, type TinyTensor, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';

type Change = (table: TinyTensor) => TinyTensor;

const config = JSON.parse(
  readFileSync(join(packageRoot(), 'test', 'fixtures', 'deepseekv4', 'config.json'), 'utf8'),
) as Record<string, unknown>;

/** The source of the first table of experts by token, in a checkpoint whose tables are changed. */
async function opened(change: Change): Promise<TensorSource> {
  const tensors = tinyTensors({ ...config, quantization_config: undefined }).map((tensor) =>
    tensor.dtype === 'I64' ? change(tensor) : tensor,
  );
  const sources: TensorSource[] = [];
  await withTemporaryDirectory(async (directory) => {
    await writeTinyCheckpoint(directory, tensors, { config });
    const { tensors: found } = await openCheckpoint(directory);
    for (const { place, source } of found) {
      if (place.kind === 'dense' && place.role === 'tokenExperts') sources.push(source);
    }
  });
  const [first] = sources;
  assert.ok(first !== undefined);
  return first;
}

function numbersOf({ data }: TinyTensor): BigInt64Array {
  return new BigInt64Array(Uint8Array.from(data).buffer);
}

/** The table with another number in the middle. */
function naming(number: bigint): Change {
  return (table) => {
    const numbers = numbersOf(table);
    numbers[numbers.length >> 1] = number;
    return { ...table, data: new Uint8Array(numbers.buffer) };
  };
}

describe('a table of experts by token', () => {
  it('of 64 bits is read by their low halves', async () => {
    const { rows, columns, split, view } = await opened((table) => table);
    assert.equal(split, 'none-fp32');
    assert.deepEqual([view?.storedRows, view?.storedColumns, view?.stepColumns], [rows, 2 * columns, 2]);
    assert.deepEqual([view?.firstRow, view?.firstColumn], [0, 0]);
  });

  it('of 32 bits is read as it is', async () => {
    const source = await opened((table) => {
      const numbers = Int32Array.from(numbersOf(table), Number);
      return { ...table, dtype: 'I32', data: new Uint8Array(numbers.buffer) };
    });
    assert.equal(source.view, null);
    assert.equal(source.chunks[0]?.plainBytes, 4 * source.rows * source.columns);
  });

  it('is refused for a number that is none of an expert, or stands twice in a row, by its file, name and row', async () => {
    const experts = BigInt(config['n_routed_experts'] as number);
    for (const number of [-1n, 2n ** 32n + 3n, -(2n ** 63n), experts, 2n ** 31n]) {
      await assert.rejects(opened(naming(number)), (error) => {
        assert.ok(error instanceof OdmoeError && error.code === 'MODEL_CORRUPT');
        assert.ok(error.message.includes(` has the number ${number} in row `), error.message);
        assert.match(error.message, /model\.safetensors: tensor layers\.0\.ffn\.gate\.tid2eid /);
        return true;
      });
    }
  });

  it('is refused as another type', async () => {
    await assert.rejects(
      opened((table) => ({ ...table, dtype: 'F32', data: table.data.slice(table.data.length / 2) })),
      (error) => error instanceof OdmoeError && /I32 or I64|I32, I64/.test(error.message),
    );
  });
});
