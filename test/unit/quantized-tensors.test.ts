import assert from 'node:assert/strict';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { configOfFixture, tensorsOfFixture } from './rewritten-experts.js';
import { type TinyTensor, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';

/** Opens a fixture whose tensors were changed; the error, if there is one. */
async function opened(
  fixture: string,
  change: (tensor: TinyTensor) => TinyTensor[],
): Promise<{ code: ErrorCode; message: string } | null> {
  const tensors = (await tensorsOfFixture(`formats/${fixture}`)).flatMap(change);
  let error: { code: ErrorCode; message: string } | null = null;
  await withTemporaryDirectory(async (directory) => {
    await writeTinyCheckpoint(directory, tensors, { config: configOfFixture(`formats/${fixture}`) });
    await openCheckpoint(directory).catch((thrown: unknown) => {
      assert.ok(thrown instanceof OdmoeError, String(thrown));
      error = { code: thrown.code, message: thrown.message };
    });
  });
  return error;
}

const without =
  (end: string) =>
  (tensor: TinyTensor): TinyTensor[] =>
    tensor.name.endsWith(end) ? [] : [tensor];

describe('the tensors of a quantized checkpoint', () => {
  it('are read where nothing was changed', async () => {
    for (const fixture of ['qwen3moe-int4-actorder', 'dsv3-gptq-descact', 'dsv3-fp8-e8m0']) {
      assert.equal(await opened(fixture, (tensor) => [tensor]), null, fixture);
    }
  });

  it('are refused without the order of their columns, where config.json says that they have one', async () => {
    for (const [fixture, part] of [
      ['qwen3moe-int4-actorder', 'weight_g_idx'],
      ['dsv3-gptq-descact', 'g_idx'],
    ] as const) {
      const error = await opened(fixture, without(`.${part}`));
      assert.equal(error?.code, 'MODEL_CORRUPT', fixture);
      assert.match(error.message, new RegExp(`tensor \\S+\\.${part} is missing`));
    }
  });

  it('need no order where config.json says that the columns are in order', async () => {
    assert.equal(await opened('qwen3moe-gptq', without('.g_idx')), null);
  });

  it('are refused with words where scales of FP8 have a type that no scale has', async () => {
    const error = await opened('dsv3-fp8-e8m0', (tensor) => [
      tensor.dtype === 'F8_E8M0' ? { ...tensor, dtype: 'U8' } : tensor,
    ]);
    assert.equal(error?.code, 'MODEL_UNSUPPORTED');
    assert.match(error.message, /weight_scale_inv.* U8/);
  });
});
