import assert from 'node:assert/strict';
import { copyFile, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openModelSource } from '../../packs/open-model-source.js';
import { NATIVE_BYTE_TOOLS } from '../../packs/packing/native-tools.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { type Config, configOfFixture, tensorsOfFixture } from './rewritten-experts.js';
import {
  safetensorsBytes,
  TINY_CONFIG,
  tinyTensors,
  type TinyTensor,
  withTemporaryDirectory,
  writeTinyCheckpoint,
} from './tiny-checkpoint.js';
import { pack } from './tiny-pack.js';

async function refuses(opened: Promise<unknown>, code: ErrorCode, message: RegExp): Promise<void> {
  await assert.rejects(opened, (thrown: unknown) => {
    assert.ok(thrown instanceof OdmoeError, String(thrown));
    assert.equal(thrown.code, code, thrown.message);
    assert.match(thrown.message, message);
    return true;
  });
}

/** Opens a fixture with another config.json, or other tensors. */
async function openFixture(
  fixture: string,
  change: Config,
  rewrite: (tensors: TinyTensor[]) => TinyTensor[] = (tensors) => tensors,
): Promise<readonly string[]> {
  const found: string[] = [];
  const tensors = rewrite(await tensorsOfFixture(fixture));
  await withTemporaryDirectory(async (directory) => {
    await writeTinyCheckpoint(directory, tensors, { config: { ...configOfFixture(fixture), ...change } });
    found.push(...(await openCheckpoint(directory)).leftOut);
  });
  return found;
}

describe('extra layers behind the last layer', () => {
  const MARKS = ['eh_proj', 'enorm', 'hnorm'] as const;
  const FAMILIES = [
    { fixture: 'deepseekv3', layers: 4 },
    { fixture: 'glm45', layers: 4 },
  ];

  for (const { fixture, layers } of FAMILIES) {
    it(`are no guess when num_hidden_layers is too small: ${fixture}`, async () => {
      const fewer = { num_hidden_layers: layers - 1 };
      for (const num_nextn_predict_layers of [undefined, 0, 1, 2, 9]) {
        const opened = openFixture(fixture, { ...fewer, num_nextn_predict_layers });
        await refuses(
          opened,
          'MODEL_UNSUPPORTED',
          new RegExp(`of layer ${layers - 1}.*num_hidden_layers ${layers - 1}`),
        );
      }
    });

    it(`are left out where config.json counts them and they have what guesses ahead: ${fixture}`, async () => {
      const leftOut = await openFixture(fixture, {});
      assert.ok(leftOut.length > 0 && leftOut.every((name) => name.startsWith(`model.layers.${layers}.`)));
      assert.deepEqual(await openFixture(fixture, { num_nextn_predict_layers: 3 }), leftOut);
      assert.deepEqual(await openFixture(fixture, { num_nextn_predict_layers: undefined, num_mtp_layers: 1 }), leftOut);
    });

    it(`are refused where nothing counts them, or one lacks a part or has one too many: ${fixture}`, async () => {
      for (const num_nextn_predict_layers of [undefined, null, 0]) {
        await refuses(
          openFixture(fixture, { num_nextn_predict_layers }),
          'MODEL_UNSUPPORTED',
          /says 0 layers behind it/,
        );
      }
      for (const mark of MARKS) {
        const name = `model.layers.${layers}.${mark}.weight`;
        const opened = openFixture(fixture, {}, (tensors) => tensors.filter((tensor) => tensor.name !== name));
        await refuses(opened, 'MODEL_UNSUPPORTED', new RegExp(`would have ${name}`));
      }
      const extra = openFixture(fixture, {}, (tensors) => {
        const [first] = tensors;
        assert.ok(first !== undefined);
        return [...tensors, { ...first, name: `model.layers.${layers}.self_attn.other.weight` }];
      });
      await refuses(extra, 'MODEL_UNSUPPORTED', /self_attn\.other\.weight.*no such tensor/);
    });
  }

  it('are left out where their own projection is quantized, too', async () => {
    const quantization_config = { quant_method: 'gptq', bits: 4, group_size: 32, sym: true, desc_act: false };
    const plain = 'model.layers.4.eh_proj.weight';
    const parts = ['qweight', 'qzeros', 'scales', 'g_idx'].map((part) => plain.replace('weight', part));
    const leftOut = await openFixture('glm45', { quantization_config }, (tensors) =>
      tensors.flatMap((tensor) => (tensor.name === plain ? parts.map((name) => ({ ...tensor, name })) : [tensor])),
    );
    assert.deepEqual(
      leftOut.filter((name) => name.includes('eh_proj')),
      [...parts].sort(),
    );
  });

  it('are refused in families that never have them', async () => {
    for (const fixture of ['mixtral', 'qwen3moe', 'deepseekv2', 'granitemoe', 'phimoe']) {
      const opened = openFixture(fixture, { num_hidden_layers: 3, num_nextn_predict_layers: 1 });
      await refuses(opened, 'MODEL_UNSUPPORTED', /of layer 3.*num_hidden_layers 3/);
    }
  });
});

describe('an LM head tensor beside tied embeddings', () => {
  const config = { ...TINY_CONFIG, tie_word_embeddings: true };
  const embedding = (tensors: readonly TinyTensor[]): TinyTensor => {
    const found = tensors.find(({ name }) => name === 'model.embed_tokens.weight');
    assert.ok(found !== undefined);
    return found;
  };
  const head = (tensor: TinyTensor, data: Uint8Array = tensor.data): TinyTensor => ({
    ...tensor,
    name: 'lm_head.weight',
    data,
  });

  it('is refused when its first or last byte differs, on opening and on packing', async () => {
    const tensors = tinyTensors(config);
    const same = embedding(tensors);
    for (const at of [0, same.data.length - 1]) {
      await withTemporaryDirectory(async (directory) => {
        const data = Uint8Array.from(same.data);
        data[at] = (data[at] ?? 0) ^ 1;
        const checkpoint = join(directory, 'checkpoint');
        await writeTinyCheckpoint(checkpoint, [...tensors, head(same, data)], { config, shards: 2 });
        await refuses(
          openModelSource(checkpoint),
          'MODEL_CORRUPT',
          /tie_word_embeddings true.*lm_head\.weight has other/,
        );
        const packed = pack(checkpoint, join(directory, 'pack'), { tools: NATIVE_BYTE_TOOLS });
        await refuses(packed, 'MODEL_CORRUPT', /tie_word_embeddings/);
      });
    }
  });

  it('is left out when its bytes are the same, and refused when its type is another', async () => {
    const tensors = tinyTensors(config);
    const same = embedding(tensors);
    await withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(directory, [...tensors, head(same)], { config });
      assert.deepEqual((await openCheckpoint(directory)).leftOut, ['lm_head.weight']);
      await writeTinyCheckpoint(directory, [...tensors, { ...head(same), dtype: 'F16' }], { config });
      await refuses(openCheckpoint(directory), 'MODEL_CORRUPT', /tie_word_embeddings/);
    });
  });

  it('is required where embeddings are not tied, and the error says so', async () => {
    for (const tie_word_embeddings of [false, undefined]) {
      await withTemporaryDirectory(async (directory) => {
        await writeTinyCheckpoint(directory, tinyTensors(config), { config: { ...config, tie_word_embeddings } });
        await refuses(openCheckpoint(directory), 'MODEL_CORRUPT', /lm_head\.weight.*set tie_word_embeddings to true/);
      });
    }
  });
});

describe('weight files that no index names', () => {
  const shard = (number: number): string => `model-0000${number}-of-00002.safetensors`;

  it('are refused beside those of an index, and beside model.safetensors', async () => {
    await withTemporaryDirectory(async (directory) => {
      const whole = safetensorsBytes(tinyTensors());
      await writeTinyCheckpoint(directory, tinyTensors(), { shards: 2 });
      await openCheckpoint(directory);
      for (const stray of [
        'model.safetensors',
        'model-00003-of-00002.safetensors',
        'adapter_model.safetensors',
        'model.fp16.safetensors',
        'model.safetensors.index.fp16.json',
        'other.safetensors.index.json',
      ]) {
        await writeFile(join(directory, stray), stray.endsWith('.json') ? '{"weight_map": {}}' : whole);
        const message = new RegExp(
          `${stray.replaceAll('.', '\\.')} stands beside the files that model\\.safetensors\\.index`,
        );
        await refuses(openModelSource(directory), 'MODEL_UNSUPPORTED', message);
        await rm(join(directory, stray));
      }
      await openCheckpoint(directory);
      await rm(join(directory, 'model.safetensors.index.json'));
      await refuses(openCheckpoint(directory), 'MODEL_NOT_FOUND', /is there, but neither model\.safetensors nor/);
      await writeFile(join(directory, 'model.safetensors'), whole);
      await refuses(
        openCheckpoint(directory),
        'MODEL_UNSUPPORTED',
        /-of-00002\.safetensors stands? beside model\.safetens/,
      );
      for (const number of [1, 2]) await rm(join(directory, shard(number)));
      await openCheckpoint(directory);
    });
  });

  it('may be one file that the index names, the same weights for another program, or another form', async () => {
    await withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(directory);
      const weight_map = Object.fromEntries(tinyTensors().map(({ name }) => [name, 'model.safetensors']));
      await writeFile(join(directory, 'model.safetensors.index.json'), JSON.stringify({ weight_map }));
      await copyFile(join(directory, 'model.safetensors'), join(directory, 'consolidated.safetensors'));
      await writeFile(join(directory, 'consolidated.safetensors.index.json'), '{}');
      for (const name of ['pytorch_model.bin', 'model-q4.gguf', 'training_args.bin']) {
        await writeFile(join(directory, name), 'x');
      }
      await mkdir(join(directory, 'original'));
      await copyFile(join(directory, 'model.safetensors'), join(directory, 'original', 'model.safetensors'));
      await openCheckpoint(directory);
    });
  });

  it('are named in the error where no others exist: GGUF and PyTorch', async () => {
    await withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(directory);
      await rm(join(directory, 'model.safetensors'));
      await writeFile(join(directory, 'pytorch_model-00001-of-00002.bin'), 'x');
      await refuses(
        openModelSource(directory),
        'MODEL_UNSUPPORTED',
        /PyTorch's own files.*get the model as safetensors/,
      );
      await rename(join(directory, 'pytorch_model-00001-of-00002.bin'), join(directory, 'model.gguf'));
      await refuses(openModelSource(directory), 'MODEL_CORRUPT', /model\.gguf: no GGUF file/);
      await rm(join(directory, 'config.json'));
      const alone = [directory, join(directory, 'model.gguf')];
      for (const path of alone) {
        await refuses(openModelSource(path), 'MODEL_CORRUPT', /model\.gguf: no GGUF file/);
        await refuses(openCheckpoint(path), 'MODEL_UNSUPPORTED', /the weights are GGUF/);
      }
    });
  });
});

describe('non-finite numbers that Python writes into config.json', () => {
  it('are read: Infinity and NaN do not break the file, and texts stay unchanged', async () => {
    await withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(directory);
      const text = JSON.stringify({ ...TINY_CONFIG, _name_or_path: 'NaN "Infinity\\' });
      await writeFile(
        join(directory, 'config.json'),
        text.replace('{', '{"initializer_range": -Infinity, "a_loss": NaN,'),
      );
      await refuses(openCheckpoint(directory), 'MODEL_UNSUPPORTED', /a_loss is "NaN"/);
      await writeFile(join(directory, 'config.json'), text.replace('{', '{"initializer_range": Infinity,'));
      await openCheckpoint(directory);
      const named = '{"initializer_range": { "__float__": "-Infinity" },';
      await writeFile(join(directory, 'config.json'), text.replace('{', named));
      await openCheckpoint(directory);
      await writeFile(join(directory, 'config.json'), text.replace('{', '{"rms_norm_eps": Infinity,'));
      await refuses(openCheckpoint(directory), 'MODEL_CORRUPT', /rms_norm_eps/);
    });
  });
});
