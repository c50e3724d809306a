import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { copyFile, symlink } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Checkpoint } from '../../packs/checkpoint/checkpoint.js';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { ggufModels } from '../../packs/gguf/gguf-directory.js';
import { openSourceCheckpoint } from '../../packs/gguf/open-source-checkpoint.js';
import { openGguf } from '../../packs/gguf/open-gguf.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { LayerShape, ModelShape } from '../../shared/model/model-shape.js';
import { EXPERT_MATRICES, isSplit, type TensorSource } from '../../shared/model/tensor-source.js';
import { rowBytes } from '../../shared/model/weight-dtype.js';
import { isOdmoe } from './gguf-refusals.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';

const formats = join(packageRoot(), 'test', 'fixtures', 'formats');

/** Split of the first expert's three matrices, and number of tensors that are left out. */
const FIXTURES: Readonly<Record<string, { experts: string; leftOut?: number }>> = {
  'gguf-deepseek2-old-q8_0': { experts: 'q8_0 q8_0 q8_0' },
  'gguf-deepseek2-q4_k_m': { experts: 'q4_k q4_k q6_k' },
  'gguf-deepseek2-q8_0': { experts: 'q8_0 q8_0 q8_0' },
  'gguf-glm4moe-q8_0': { experts: 'q8_0 q8_0 q8_0', leftOut: 25 },
  'gguf-gptoss-mxfp4': { experts: 'mxfp4 mxfp4 mxfp4' },
  'gguf-minimax-m2-q8_0': { experts: 'q8_0 q8_0 q8_0' },
  'gguf-mixtral-q4_1': { experts: 'q4_1 q4_1 q4_1' },
  'gguf-qwen35moe-q4_k_m': { experts: 'q4_k q4_k q5_0' },
  'gguf-qwen3moe-align128': { experts: 'q5_0 q5_0 q5_0' },
  'gguf-qwen3moe-bf16-split': { experts: 'none-bf16 none-bf16 none-bf16' },
  'gguf-qwen3moe-f16': { experts: 'none-fp16 none-fp16 none-fp16' },
  'gguf-qwen3moe-iq4_xs': { experts: 'iq4_xs iq4_xs iq4_xs' },
  'gguf-qwen3moe-mixed': { experts: '' },
  'gguf-qwen3moe-nvfp4': { experts: 'nvfp4-multiplied nvfp4-multiplied nvfp4-multiplied', leftOut: 9 },
  'gguf-qwen3moe-q4_0': { experts: 'q4_0 q4_0 q4_0' },
  'gguf-qwen3moe-q4_k_m': { experts: '' },
  'gguf-qwen3moe-q5_k_m': { experts: '' },
  'gguf-qwen3moe-q6_k': { experts: 'q6_k q6_k q6_k' },
  'gguf-qwen3moe-q8_0': { experts: 'q8_0 q8_0 q8_0' },
  'gguf-qwen3next-fused-q8_0': { experts: 'q8_0 q8_0 q8_0' },
  'gguf-qwen3next-q8_0': { experts: 'q8_0 q8_0 q8_0' },
};

function pathOf(name: string): string {
  const [file = ''] = readdirSync(join(formats, name)).filter((entry) => entry.endsWith('.gguf'));
  return join(formats, name, file);
}

/** The shape of the model that transformers ran, from the config.json that it had. */
function shapeOfMakers(name: string): ModelShape {
  const { config } = JSON.parse(readFileSync(join(formats, name, 'reference.json'), 'utf8')) as { config: object };
  return parseModelConfig(config, 'config.json').config.shape;
}

/** A layer without what tells in which order the file stores its tensors. */
function withoutOrder(layer: LayerShape): unknown {
  const { mixer } = layer;
  if (mixer.kind === 'attention') return { ...layer, mixer: { ...mixer, rotary: { ...mixer.rotary, pairing: null } } };
  if (mixer.kind !== 'delta') return layer;
  return { ...layer, mixer: { ...mixer, valueHeadOrder: undefined, decayForm: undefined } };
}

/** Every tensor has as many bytes as its values or blocks take. */
function checkBytes(source: TensorSource, what: string): void {
  const { view, chunks } = source;
  if (view !== null && !isSplit(view.storedSplit)) return;
  const [rows, columns] = view === null ? [source.rows, source.columns] : [view.storedRows, view.storedColumns];
  const split = view === null || !isSplit(view.storedSplit) ? source.split : view.storedSplit;
  assert.equal(chunks[0]?.storedBytes, rows * rowBytes(split, columns), `${what}: bytes`);
}

describe('a GGUF file as the checkpoint that it was made from:', () => {
  it('every fixture is described here', () => {
    const names = readdirSync(formats).filter((name) => name.startsWith('gguf-') && !name.endsWith('bigendian'));
    assert.deepEqual(names.sort(), Object.keys(FIXTURES).sort());
  });

  for (const [name, { experts, leftOut = 0 }] of Object.entries(FIXTURES)) {
    describe(name, () => {
      let model: Checkpoint;
      before(async () => {
        model = await openGguf(pathOf(name));
      });

      it('has the shape that the makers gave it', () => {
        const wanted = shapeOfMakers(name);
        assert.deepEqual(model.shape.layers.map(withoutOrder), wanted.layers.map(withoutOrder));
        assert.deepEqual({ ...model.shape, layers: [] }, { ...wanted, layers: [] });
      });

      it('finds all tensors, each with its bytes', () => {
        assert.equal(model.leftOut.length, leftOut);
        for (const { name: tensor, source } of model.tensors) checkBytes(source, tensor);
        const first = model.expert(0, 0);
        const splits = EXPERT_MATRICES.map((part) => first[part].split).join(' ');
        if (experts !== '') assert.equal(splits, experts);
      });

      it('makes the files of a checkpoint, and its tokenizer answers', async () => {
        assert.deepEqual([...(model.madeFiles?.keys() ?? [])].sort(), [
          'config.json',
          'generation_config.json',
          'tokenizer.json',
          'tokenizer_config.json',
        ]);
        const tokenizer = await openTokenizer(model.directory, model.madeFiles);
        assert.equal(tokenizer?.decode(tokenizer.encodeRendered('hello')), 'hello');
      });
    });
  }
});

describe('links to GGUF files', () => {
  it('give a model its parts and its name by the names of the links, as in the cache of downloads', async () => {
    const split = pathOf('gguf-qwen3moe-bf16-split');
    const wanted = await openGguf(split);
    await withTemporaryDirectory(async (directory) => {
      for (const [index, { path }] of wanted.files.entries()) {
        await copyFile(path, join(directory, `hash${index}`));
        await symlink(`hash${index}`, join(directory, basename(path)));
      }
      const linked = await openGguf(join(directory, basename(split)));
      assert.deepEqual(
        linked.files.map(({ path }) => path),
        wanted.files.map(({ path }) => join(directory, basename(path))),
      );
      await symlink(split, join(directory, 'mine.gguf'));
      const own = await openGguf(join(directory, 'mine.gguf'));
      assert.deepEqual(
        own.files.map(({ path }) => path),
        wanted.files.map(({ path }) => path),
      );
    });
  });
});

describe('the order in which a GGUF file stores its tensors:', () => {
  const mixerOf = async (name: string): Promise<LayerShape['mixer']> => {
    const { shape } = await openGguf(pathOf(name));
    return shape.layers[0]?.mixer ?? assert.fail();
  };

  it("Mixtral's rows are permuted, so neighbours rotate", async () => {
    const mixer = await mixerOf('gguf-mixtral-q4_1');
    assert.ok(mixer.kind === 'attention' && mixer.rotary?.pairing === 'neighbours');
  });

  it("Qwen3.5's value heads are tiled, Qwen3-Next's are grouped, and both have rates", async () => {
    const [tiled, grouped] = [await mixerOf('gguf-qwen35moe-q4_k_m'), await mixerOf('gguf-qwen3next-q8_0')];
    assert.ok(tiled.kind === 'delta' && grouped.kind === 'delta');
    assert.deepEqual([tiled.valueHeadOrder, tiled.decayForm], ['tiled', 'rate']);
    assert.deepEqual([grouped.valueHeadOrder, grouped.decayForm], [undefined, 'rate']);
  });
});

describe('experts of a GGUF file:', () => {
  it("a fused stack has an expert's gate, then its up matrix", async () => {
    const model = await openGguf(pathOf('gguf-qwen3next-fused-q8_0'));
    const places = [model.expert(2, 0).gate, model.expert(2, 0).up, model.expert(2, 1).gate].map(
      ({ chunks }) => chunks[0],
    );
    const sizes = places.map((chunk) => chunk?.storedBytes);
    assert.deepEqual(sizes, Array(3).fill(32 * rowBytes('q8_0', 64)));
    const [gate = NaN, up, next] = places.map((chunk) => chunk?.offsetBytes);
    assert.deepEqual([up, next], [gate + 32 * rowBytes('q8_0', 64), gate + 64 * rowBytes('q8_0', 64)]);
  });

  it('each expert of NVFP4 has its own scale', async () => {
    const model = await openGguf(pathOf('gguf-qwen3moe-nvfp4'));
    const [first, third] = [model.expert(1, 0).up.chunks[1], model.expert(1, 2).up.chunks[1]];
    assert.equal((third?.offsetBytes ?? 0) - (first?.offsetBytes ?? 0), 8);
    assert.deepEqual([third?.storedBytes, third?.plane], [4, 1]);
  });

  it("biases of gpt-oss's experts are read", async () => {
    const model = await openGguf(pathOf('gguf-gptoss-mxfp4'));
    const { biases } = model.expert(0, 1);
    assert.equal(biases?.length, 2 * model.shape.expert.intermediateSize + model.shape.hiddenSize);
    assert.ok(biases.some((value) => value !== 0));
  });
});

describe('the path of a GGUF model:', () => {
  it('a directory with one model means this model', async () => {
    const { name, files } = await openSourceCheckpoint(join(formats, 'gguf-qwen3moe-bf16-split'));
    assert.deepEqual([name, files.length], ['tiny', 3]);
  });

  it('counts first parts and single files, and no encoders', () => {
    const names = ['a-00001-of-00002.gguf', 'a-00002-of-00002.gguf', 'mmproj-a.gguf', 'b.gguf', 'README.md'];
    assert.deepEqual(ggufModels(names), ['a-00001-of-00002.gguf', 'b.gguf']);
  });

  it('a big-endian file is refused', async () => {
    await assert.rejects(openGguf(pathOf('gguf-qwen3moe-bigendian')), isOdmoe('MODEL_UNSUPPORTED', /big-endian/));
  });
});
