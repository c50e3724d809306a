import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openModelSource } from '../../packs/open-model-source.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { checkpointName, openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import type { ModelSource, TensorSource } from '../../shared/model/tensor-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import {
  safetensorsBytes,
  TINY_CONFIG,
  tinyTensors,
  type TinyTensor,
  withTemporaryDirectory,
  writeTinyCheckpoint,
} from './tiny-checkpoint.js';

async function refuses(directory: string, code: ErrorCode, message: RegExp): Promise<void> {
  await assert.rejects(openModelSource(directory), (thrown: unknown) => {
    assert.ok(thrown instanceof OdmoeError, String(thrown));
    assert.equal(thrown.code, code, thrown.message);
    assert.match(thrown.message, message);
    return true;
  });
}

async function bytesOf(tensor: TensorSource): Promise<Uint8Array> {
  const [chunk] = tensor.chunks;
  assert.ok(chunk);
  const file = await readFile(chunk.path);
  return new Uint8Array(file.subarray(chunk.offsetBytes, chunk.offsetBytes + chunk.storedBytes));
}

async function holdsTensors(source: ModelSource, tensors: readonly TinyTensor[]): Promise<void> {
  const named = new Map(tensors.map((tensor) => [tensor.name, tensor.data]));
  const experts = 'model.layers.1.block_sparse_moe.experts.2';
  assert.deepEqual(await bytesOf(source.expert(1, 2).gate), named.get(`${experts}.w1.weight`));
  assert.deepEqual(await bytesOf(source.expert(1, 2).up), named.get(`${experts}.w3.weight`));
  assert.deepEqual(await bytesOf(source.expert(1, 2).down), named.get(`${experts}.w2.weight`));
  assert.deepEqual(await bytesOf(source.dense('router', 1)), named.get('model.layers.1.block_sparse_moe.gate.weight'));
  assert.deepEqual(await bytesOf(source.dense('embedding', 0)), named.get('model.embed_tokens.weight'));
  assert.deepEqual(
    await bytesOf(source.dense('feedForwardNorm', 0)),
    named.get('model.layers.0.post_attention_layernorm.weight'),
  );
}

/** The tiny tensors with one of them changed. */
function changed(name: RegExp, change: (tensor: TinyTensor) => Partial<TinyTensor> | null): TinyTensor[] {
  let hits = 0;
  const tensors = tinyTensors().flatMap((tensor) => {
    if (!name.test(tensor.name) || hits > 0) return [tensor];
    hits += 1;
    const difference = change(tensor);
    return difference === null ? [] : [{ ...tensor, ...difference }];
  });
  assert.equal(hits, 1);
  return tensors;
}

describe('opening a Hugging Face checkpoint', () => {
  it('finds every tensor in one file and in shards with an index', async () => {
    await withTemporaryDirectory(async (directory) => {
      const tensors = tinyTensors();
      await writeTinyCheckpoint(join(directory, 'one'), tensors);
      await writeTinyCheckpoint(join(directory, 'many'), tensors, { shards: 3 });
      for (const name of ['one', 'many']) {
        const source = await openModelSource(join(directory, name));
        assert.equal(source.kind, 'checkpoint');
        assert.equal(source.name, name);
        assert.equal(source.packDigest, null);
        assert.equal(source.shippedFormat, 'bf16');
        await holdsTensors(source, tensors);
      }
    });
  });

  it('opens the demo model and the fixture', async () => {
    const demo = await openModelSource(join(packageRoot(), 'models', 'demo'));
    assert.deepEqual(demo.eosTokenIds, [1]);
    assert.equal(demo.shape.layers.length, 8);
    const fixture = await openModelSource(join(packageRoot(), 'test', 'fixtures', 'mixtral'));
    assert.equal(fixture.shape.layers.length, 4);
  });

  it('reads a vector as one row, and names types that are mixed', async () => {
    await withTemporaryDirectory(async (directory) => {
      const mixed = tinyTensors(TINY_CONFIG, ({ name }) => (name.includes('experts.1') ? 'F16' : 'BF16'));
      await writeTinyCheckpoint(directory, mixed);
      const source = await openModelSource(directory);
      assert.equal(source.shippedFormat, 'mixed');
      assert.equal(source.expert(0, 1).up.split, 'none-fp16');
      const norm = source.dense('finalNorm', 0);
      assert.deepEqual([norm.rows, norm.columns], [1, 16]);
    });
  });

  it('adds the end-of-sequence tokens of generation_config.json', async () => {
    await withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(directory);
      await writeFile(join(directory, 'generation_config.json'), '{"eos_token_id": [9, 2, 5]}');
      assert.deepEqual((await openModelSource(directory)).eosTokenIds, [2, 5, 9]);
      for (const eos of ['"end"', '-1', '[2, 2.5]', '1e12']) {
        await writeFile(join(directory, 'generation_config.json'), `{"eos_token_id": ${eos}}`);
        await refuses(
          directory,
          'MODEL_CORRUPT',
          /generation_config\.json: eos_token_id is .*, expected a token id or a list .*null.*download generation_config\.json again/,
        );
      }
      await writeFile(join(directory, 'generation_config.json'), '[]');
      await refuses(directory, 'MODEL_CORRUPT', /generation_config\.json: is no JSON object/);
    });
  });

  it("takes the family's usual end-of-sequence token where no file has the key, and none for null", async () => {
    await withTemporaryDirectory(async (directory) => {
      const silent = { ...TINY_CONFIG, eos_token_id: undefined };
      const ends = async (config: Record<string, unknown>): Promise<readonly number[]> => {
        await writeTinyCheckpoint(directory, tinyTensors(), { config });
        return (await openModelSource(directory)).eosTokenIds;
      };
      assert.deepEqual(await ends(silent), [2]);
      assert.deepEqual(await ends({ ...silent, eos_token_id: null }), []);
      assert.deepEqual(await ends({ ...silent, eos_token_id: [7, 5] }), [5, 7]);
      await writeFile(join(directory, 'generation_config.json'), '{"eos_token_id": 9}');
      assert.deepEqual(await ends(silent), [9]);
    });
  });

  it('reads tied embeddings with and without a redundant LM head', async () => {
    await withTemporaryDirectory(async (directory) => {
      const config = { ...TINY_CONFIG, tie_word_embeddings: true };
      const tied = tinyTensors(config);
      assert.ok(!tied.some(({ name }) => name === 'lm_head.weight'));
      await writeTinyCheckpoint(join(directory, 'a'), tied, { config });
      const embedding = tied.find(({ name }) => name === 'model.embed_tokens.weight');
      assert.ok(embedding !== undefined);
      await writeTinyCheckpoint(join(directory, 'b'), [...tied, { ...embedding, name: 'lm_head.weight' }], { config });
      for (const name of ['a', 'b']) {
        const source = await openModelSource(join(directory, name));
        assert.equal(source.tiedEmbeddings, true);
        assert.throws(() => source.dense('lmHead', 0), /tied/);
      }
    });
  });

  it('names missing files', async () => {
    await withTemporaryDirectory(async (directory) => {
      await refuses(join(directory, 'nowhere'), 'MODEL_NOT_FOUND', /nowhere: no model; give a pack/);
      await refuses(directory, 'MODEL_NOT_FOUND', /no model/);
      await writeFile(join(directory, 'config.json'), JSON.stringify(TINY_CONFIG));
      await refuses(directory, 'MODEL_NOT_FOUND', /neither model\.safetensors nor/);
      await writeTinyCheckpoint(directory, tinyTensors(), { shards: 2 });
      await rm(join(directory, 'model-00002-of-00002.safetensors'));
      await refuses(directory, 'MODEL_NOT_FOUND', /model-00002-of-00002\.safetensors: no such file/);
    });
  });

  it('refuses a config.json that is not JSON, truncated, or absurdly large', async () => {
    await withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(directory);
      await truncate(join(directory, 'config.json'), 20);
      await refuses(directory, 'MODEL_CORRUPT', /config\.json: not valid JSON/);
      await truncate(join(directory, 'config.json'), 17 * 1024 * 1024);
      await refuses(directory, 'MODEL_CORRUPT', /expected at most/);
      await rm(join(directory, 'config.json'));
      await mkdir(join(directory, 'config.json'));
      await refuses(directory, 'STORAGE_FAILED', /config\.json: cannot be read/);
    });
  });

  it('refuses pipes and devices in the place of files, and waits for none', async () => {
    for (const name of ['config.json', 'model.safetensors', 'model.safetensors.index.json']) {
      await withTemporaryDirectory(async (directory) => {
        await writeTinyCheckpoint(directory);
        const path = join(directory, name);
        await rm(path, { force: true });
        execFileSync('mkfifo', [path]);
        await refuses(directory, 'STORAGE_FAILED', new RegExp(`${name}: cannot be read .not a regular file`));
        await rm(path);
        await symlink('/dev/zero', path);
        await refuses(directory, 'STORAGE_FAILED', new RegExp(`${name}: cannot be read .not a regular file`));
      });
    }
  });

  it('refuses a link that leads nowhere in the place of a file', async () => {
    await withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(directory);
      await symlink('nowhere', join(directory, 'generation_config.json'));
      await refuses(directory, 'MODEL_NOT_FOUND', /generation_config\.json: no such file/);
    });
  });

  it('refuses tensors that are missing, misshapen, of another type, or unknown', async () => {
    const w1 = /experts\.1\.w1\.weight$/;
    const cases: [TinyTensor[], ErrorCode, RegExp][] = [
      [changed(w1, () => null), 'MODEL_CORRUPT', /experts\.1\.w1\.weight of shape \[20, 16\] is missing/],
      [
        changed(w1, ({ shape }) => ({ shape: [...shape].reverse() })),
        'MODEL_CORRUPT',
        /w1\.weight has shape \[16, 20\], expected \[20, 16\]/,
      ],
      [changed(w1, () => ({ shape: [320] })), 'MODEL_CORRUPT', /has shape \[320\]/],
      [changed(w1, () => ({ dtype: 'I16' })), 'MODEL_UNSUPPORTED', /has dtype I16, supported are BF16, F16, F32/],
      [
        [
          ...tinyTensors(),
          { name: 'model.layers.0.self_attn.q_proj.bias', dtype: 'BF16', shape: [1], data: new Uint8Array(2) },
        ],
        'MODEL_UNSUPPORTED',
        /q_proj\.bias.*no place/,
      ],
    ];
    for (const [tensors, code, message] of cases) {
      await withTemporaryDirectory(async (directory) => {
        await writeTinyCheckpoint(directory, tensors);
        await refuses(directory, code, message);
      });
    }
  });

  it('ignores tables of rotary frequencies', async () => {
    await withTemporaryDirectory(async (directory) => {
      const table = {
        name: 'model.layers.0.self_attn.rotary_emb.inv_freq',
        dtype: 'F32',
        shape: [2],
        data: new Uint8Array(8),
      };
      await writeTinyCheckpoint(directory, [...tinyTensors(), table]);
      await openModelSource(directory);
    });
  });

  it('refuses an index with false entries', async () => {
    const shard = 'model-00001-of-00002.safetensors';
    const lie = async (change: (map: Record<string, string>) => unknown, message: RegExp): Promise<void> => {
      await withTemporaryDirectory(async (directory) => {
        await writeTinyCheckpoint(directory, tinyTensors(), { shards: 2 });
        const path = join(directory, 'model.safetensors.index.json');
        const index = JSON.parse(await readFile(path, 'utf8')) as { weight_map: Record<string, string> };
        await writeFile(path, JSON.stringify(change(index.weight_map) ?? index));
        await refuses(directory, 'MODEL_CORRUPT', message);
      });
    };
    await lie((map) => void (map['made.up'] = shard), /"made\.up" expected in model-00001-of-00002.*does not hold/);
    await lie((map) => void (map['lm_head.weight'] = '../x.safetensors'), /"\.\.\/x\.safetensors" is not the name/);
    await lie((map) => void (map['lm_head.weight'] = '/etc/passwd'), /is not the name/);
    await lie((map) => void delete map['lm_head.weight'], /"lm_head\.weight" stands in .* no file/);
    await lie(() => ({ weight_map: [] }), /weight_map/);
    await lie(() => ({}), /weight_map/);
  });

  it('refuses a tensor that two shards hold', async () => {
    await withTemporaryDirectory(async (directory) => {
      const tensors = tinyTensors();
      await writeTinyCheckpoint(directory, tensors, { shards: 2 });
      const second = tensors.filter((_, index) => index % 2 === 1);
      const repeated = safetensorsBytes([...second, ...tensors.slice(0, 1)]);
      await writeFile(join(directory, 'model-00002-of-00002.safetensors'), repeated);
      await refuses(directory, 'MODEL_CORRUPT', /embed_tokens\.weight" stands in model-00002.*gives model-00001/);
    });
  });
});

describe('the name of a checkpoint', () => {
  it('is that of the directory, or of the repository in a download cache', async () => {
    assert.equal(checkpointName('/data/Mixtral-8x7B'), 'Mixtral-8x7B');
    assert.equal(checkpointName('/h/models--mistralai--Mixtral-8x7B/snapshots/ab12'), 'mistralai/Mixtral-8x7B');
    await withTemporaryDirectory(async (directory) => {
      await writeTinyCheckpoint(join(directory, 'tiny'));
      assert.equal((await openCheckpoint(`${directory}/tiny/`)).name, 'tiny');
    });
  });
});
