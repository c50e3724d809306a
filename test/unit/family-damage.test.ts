import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { readSafetensorsFile } from '../../packs/checkpoint/safetensors-file.js';
import { type TinyTensor, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';

function fixtureFile(name: string, file: string): string {
  return join(packageRoot(), 'test', 'fixtures', name, file);
}

async function tensorsOf(name: string): Promise<TinyTensor[]> {
  const path = fixtureFile(name, 'model.safetensors');
  const bytes = readFileSync(path);
  const { tensors } = await readSafetensorsFile(path);
  return [...tensors.values()].map(({ name: tensor, dtype, shape, offsetBytes, sizeBytes }) => {
    return { name: tensor, dtype, shape, data: bytes.subarray(offsetBytes, offsetBytes + sizeBytes) };
  });
}

type Change = (tensor: TinyTensor) => TinyTensor[];

/** Opens a fixture in which some tensors were changed. */
async function openChanged(name: string, target: RegExp, change: Change): Promise<void> {
  const config = JSON.parse(readFileSync(fixtureFile(name, 'config.json'), 'utf8')) as Record<string, unknown>;
  const tensors = await tensorsOf(name);
  assert.ok(tensors.some((tensor) => target.test(tensor.name)));
  const changed = tensors.flatMap((tensor) => (target.test(tensor.name) ? change(tensor) : [tensor]));
  await withTemporaryDirectory(async (directory) => {
    await writeTinyCheckpoint(directory, changed, { config });
    await openCheckpoint(directory);
  });
}

async function refuses(name: string, target: RegExp, change: Change, code: ErrorCode, message: RegExp): Promise<void> {
  await assert.rejects(openChanged(name, target, change), (thrown: unknown) => {
    assert.ok(thrown instanceof OdmoeError, String(thrown));
    assert.equal(thrown.code, code, thrown.message);
    assert.match(thrown.message, message);
    return true;
  });
}

const without: Change = () => [];

/** A change to another shape with the same number of values. */
function shaped(shape: readonly number[]): Change {
  return (tensor) => [{ ...tensor, shape }];
}

function typed(dtype: string): Change {
  return (tensor) => [{ ...tensor, dtype, data: new Uint8Array(tensor.data.length) }];
}

function named(name: string): Change {
  return (tensor) => [tensor, { ...tensor, name }];
}

describe('an incomplete checkpoint of a family', () => {
  it('is refused where FP8 weights lack scales of the right number and type', async () => {
    const scales = /layers\.1\.mlp\.experts\.0\.down_proj\.weight_scale_inv/;
    await refuses('deepseekv3-fp8', scales, without, 'MODEL_CORRUPT', /weight_scale_inv of shape \[2, 1\] is missing/);
    await refuses('deepseekv3-fp8', scales, shaped([1, 2]), 'MODEL_CORRUPT', /\[1, 2\], expected \[2, 1\]/);
    const doubles: Change = (tensor) => [{ ...tensor, dtype: 'F64', data: new Uint8Array(2 * tensor.data.length) }];
    await refuses('deepseekv3-fp8', scales, doubles, 'MODEL_UNSUPPORTED', /dtype F64, supported are .*F32/);
    const weight = /layers\.1\.mlp\.experts\.0\.down_proj\.weight$/;
    await refuses('deepseekv3-fp8', weight, typed('F8_E5M2'), 'MODEL_UNSUPPORTED', /dtype F8_E5M2/);
    const extra = named('model.layers.1.mlp.gate.weight_scale_inv');
    await refuses('deepseekv3-fp8', scales, extra, 'MODEL_UNSUPPORTED', /gate\.weight_scale_inv.*has no place/);
  });

  it('is refused where FP8 weights are not declared in config.json', async () => {
    const weight = /layers\.1\.mlp\.experts\.0\.down_proj\.weight$/;
    const bytes: Change = (tensor) => [{ ...tensor, dtype: 'F8_E4M3', data: tensor.data.subarray(0, 64 * 32) }];
    await refuses('deepseekv3', weight, bytes, 'MODEL_UNSUPPORTED', /dtype F8_E4M3, supported are BF16, F16, F32/);
  });

  it('is refused where MXFP4 blocks lack their scales', async () => {
    const scales = /layers\.1\.mlp\.experts\.down_proj_scales/;
    await refuses(
      'gptoss-mxfp4',
      scales,
      without,
      'MODEL_CORRUPT',
      /down_proj_scales of shape \[8, 64, 2\] is missing/,
    );
    await refuses('gptoss-mxfp4', scales, shaped([8, 128]), 'MODEL_CORRUPT', /expected \[8, 64, 2\]/);
    const blocks = /layers\.1\.mlp\.experts\.gate_up_proj_blocks/;
    await refuses('gptoss-mxfp4', blocks, shaped([8, 64, 4, 16]), 'MODEL_CORRUPT', /expected \[8, 128, 2, 16\]/);
    await refuses('gptoss-mxfp4', blocks, typed('I8'), 'MODEL_UNSUPPORTED', /dtype I8, supported are U8/);
    const bias = /layers\.1\.mlp\.experts\.gate_up_proj_bias/;
    await refuses('gptoss-mxfp4', bias, without, 'MODEL_CORRUPT', /gate_up_proj_bias of shape \[8, 128\] is missing/);
  });

  it('is refused where fused experts are not as large as config.json says', async () => {
    const fused = /layers\.2\.experts\.gate_up_proj$/;
    const sideways = /\[12, 64, 40\].*stand transposed.*\[12, 40, 64\]/;
    await refuses('gemma4moe', fused, shaped([12, 64, 40]), 'MODEL_UNSUPPORTED', sideways);
    await refuses('gemma4moe', fused, shaped([24, 20, 64]), 'MODEL_CORRUPT', /\[24, 20, 64\], expected \[12, 40, 64\]/);
  });

  it('may have tensors of other towers, which are left out, but no unknown ones', async () => {
    const norm = /language_model\.norm\.weight/;
    await openChanged('gemma4moe', norm, named('model.vision_tower.something.new'));
    await refuses('gemma4moe', norm, named('model.hearing.weight'), 'MODEL_UNSUPPORTED', /model\.hearing\.weight/);
    await refuses('glm45', /model\.norm/, named('model.layers.9.norm.weight'), 'MODEL_UNSUPPORTED', /of layer 9/);
    await refuses('glm45', /model\.norm/, named('model.layers.4.norm.weight'), 'MODEL_UNSUPPORTED', /no such tensor/);
    await refuses('glm45', /model\.norm/, named('model.layers.3.norm.weight'), 'MODEL_UNSUPPORTED', /has no place/);
    await openChanged('phimoe', /model\.norm\.weight/, named('model.layers.0.self_attn.rotary_emb.inv_freq'));
    await refuses('phimoe', /model\.norm\.weight/, named('model.layers.4.x.weight'), 'MODEL_UNSUPPORTED', /of layer 4/);
  });
});
