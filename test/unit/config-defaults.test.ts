import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MODEL_FAMILIES, parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelConfig } from '../../packs/model-config/model-family.js';

type Config = Record<string, unknown>;

interface Defaults {
  /** Version of transformers. */
  transformers: string;
  /** The result of `Config().to_dict()`, by family. `source`: the file of the class. */
  families: Record<string, { source: string; config: Config }>;
}

const path = join(packageRoot(), 'test', 'fixtures', 'config-defaults', 'transformers-5.18.0.json');
const DEFAULTS = JSON.parse(readFileSync(path, 'utf8')) as Defaults;

/** Keys that a model of a family must have, because transformers' defaults alone make no model with experts. */
const NEEDED: Readonly<Record<string, Config>> = {
  hunyuan_v1_moe: { num_experts: 8, moe_topk: 2 },
  // 4096 is not a multiple of 96.
  glm4_moe: { head_dim: 128 },
  deepseek_v2: { num_experts_per_tok: 6 },
  dots1: { n_routed_experts: 8, num_experts_per_tok: 2 },
  gemma4: {
    num_experts: 8,
    top_k_experts: 2,
    moe_intermediate_size: 704,
    enable_moe_block: true,
    hidden_size_per_layer_input: 0,
  },
  lfm2_moe: { layer_types: Array.from({ length: 32 }, (_, layer) => (layer % 4 === 2 ? 'full_attention' : 'conv')) },
};

/** All that config.json decides. */
function meaning({ shape, tiedEmbeddings, eosTokenIds, usualEosTokenIds }: ModelConfig): unknown {
  return { shape, tiedEmbeddings, eos: eosTokenIds.length > 0 ? eosTokenIds : usualEosTokenIds };
}

function read(config: Config): unknown {
  return meaning(parseModelConfig(config, 'config.json').config);
}

function without(config: Config, ...keys: string[]): Config {
  return Object.fromEntries(Object.entries(config).filter(([key]) => !keys.includes(key)));
}

/** The result of a read without the key; null: the config is refused with an error that names the key. */
function readWithout(config: Config, key: string): unknown {
  try {
    return read(without(config, key));
  } catch (thrown) {
    assert.ok(thrown instanceof OdmoeError && thrown.code.startsWith('MODEL_'), String(thrown));
    assert.ok(thrown.message.includes(key), `without ${key}: ${thrown.message}`);
    return null;
  }
}

/** Keys that give one value in two places. If one is left out, the other counts. */
const SAID_TWICE: readonly string[] = ['architectures', 'model_type'];

describe(`what config.json leaves out, beside transformers ${DEFAULTS.transformers}`, () => {
  it('exists for every family', () => {
    const missing = MODEL_FAMILIES.map(({ name }) => name).filter((name) => !Object.hasOwn(DEFAULTS.families, name));
    assert.deepEqual(missing, [], `${path} needs an entry for each family of MODEL_FAMILIES`);
    assert.equal(Object.keys(DEFAULTS.families).length, MODEL_FAMILIES.length, `${path} has an entry of no family`);
  });

  for (const [family, { source, config }] of Object.entries(DEFAULTS.families)) {
    const full: Config = { ...config, ...NEEDED[family] };

    it(`${family} takes what ${source} takes, or refuses a key that is missing`, () => {
      const expected = read(full);
      for (const key of Object.keys(full).filter((name) => !SAID_TWICE.includes(name))) {
        const found = readWithout(full, key);
        if (found !== null) assert.deepEqual(found, expected, `${family} without ${key}`);
      }
    });

    it(`${family} takes transformers' values with as few keys as it needs`, () => {
      let few = full;
      for (const key of Object.keys(full)) {
        if (!SAID_TWICE.includes(key) && readWithout(few, key) !== null) few = without(few, key);
      }
      assert.deepEqual(read(few), read(full));
      const needed = Object.keys(few);
      const most = Object.keys(full).length / 2;
      assert.ok(
        needed.length < most,
        `${family} cannot be read without ${needed.length} of ${most * 2} keys: ${needed.join()}`,
      );
    });
  }
});
