import assert from 'node:assert/strict';
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { verdictLine } from '../../cli/output/verdict-report.js';
import { checkModel } from '../../cli/doctor/model-check.js';
import { judgeConfig } from '../../packs/checkpoint/config-verdict.js';
import { readConfigVerdict } from '../../packs/read-config-verdict.js';
import { MODEL_FAMILIES } from '../../packs/checkpoint/model-config.js';
import { unreadArchitecture } from '../../packs/checkpoint/unread-architectures.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type Config, configOf } from './fixture-config.js';

const judge = (config: Config): ReturnType<typeof judgeConfig> => judgeConfig(config, 'config.json');
const mixtralPath = join(packageRoot(), 'test', 'fixtures', 'mixtral');

describe('the verdict on a config.json', () => {
  it('says that a model runs, and as which family', () => {
    const { verdict, family, without, missing, reason } = judge(configOf('mixtral'));
    assert.deepEqual([verdict, family, without, missing, reason], ['runs', 'mixtral', [], [], null]);
  });

  it('names what is left out of a model whose text runs', () => {
    const verdict = judge(configOf('qwen3vlmoe'));
    assert.deepEqual([verdict.verdict, verdict.without], ['runs-without', ['images']]);
    assert.equal(verdictLine(verdict), 'runs without images: its text runs');
  });

  it('names the operators that odmoe lacks', () => {
    const verdict = judge({ architectures: ['JambaForCausalLM'], model_type: 'jamba', num_experts: 8 });
    assert.deepEqual([verdict.verdict, verdict.family], ['not-yet', null]);
    assert.deepEqual(verdict.missing, ['Mamba-1 layers']);
    assert.equal(verdictLine(verdict), 'does not run yet: odmoe lacks Mamba-1 layers');
  });

  it('says that experts with rows of a size of their own run', () => {
    const latent = judge({ ...configOf('nemotronh'), moe_latent_size: 16 });
    assert.deepEqual([latent.verdict, latent.missing], ['runs', []]);
  });

  it('names the key, the format or the architecture that is not read', () => {
    const format = judge({ ...configOf('mixtral'), quantization_config: { quant_method: 'hqq' } });
    assert.deepEqual([format.verdict, format.missing], ['not-yet', []]);
    assert.match(verdictLine(format), /^does not run yet: .*hqq/);
    const unknown = judge({ architectures: ['NobodyForCausalLM'], text_config: { num_experts: 4 } });
    assert.equal(unknown.verdict, 'not-yet');
    assert.match(verdictLine(unknown), /NobodyForCausalLM is not supported/);
  });

  it('says that dense models, and experts with a capacity, never run', () => {
    const dense = judge({ architectures: ['LlamaForCausalLM'], hidden_size: 8, num_hidden_layers: 2 });
    assert.equal(dense.verdict, 'never');
    assert.match(verdictLine(dense), /^does not run: .*names no experts/);
    for (const config of [
      { ...configOf('nemotronh'), hybrid_override_pattern: 'M-M*-M-', n_routed_experts: null },
      { ...configOf('granitemoehybrid'), num_local_experts: 0 },
    ]) {
      const of = judge(config);
      assert.equal(of.verdict, 'never');
      assert.match(verdictLine(of), /^does not run: .*no layer of the model has experts/);
    }
    const capacity = judge({ architectures: ['SwitchTransformersForConditionalGeneration'], num_experts: 8 });
    assert.equal(capacity.verdict, 'never');
    assert.match(verdictLine(capacity), /have a capacity/);
  });

  it('throws for a file that contradicts itself', () => {
    assert.throws(
      () => judge({ ...configOf('mixtral'), num_key_value_heads: 3 }),
      (thrown: unknown) => thrown instanceof OdmoeError && thrown.code === 'MODEL_CORRUPT',
    );
    assert.throws(
      () => judgeConfig([], 'config.json'),
      (thrown: unknown) => thrown instanceof OdmoeError && thrown.code === 'MODEL_CORRUPT',
    );
  });

  it('calls no architecture unread that a family reads', () => {
    const read = MODEL_FAMILIES.flatMap(({ name, architectures }) => [name, ...architectures]);
    assert.deepEqual(
      read.filter((name) => unreadArchitecture([name]) !== null),
      [],
    );
  });

  it('is given on a file, or on a directory without weights', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-verdict-'));
    try {
      await copyFile(join(mixtralPath, 'config.json'), join(directory, 'config.json'));
      assert.equal((await readConfigVerdict(directory))?.verdict.verdict, 'runs');
      assert.equal((await readConfigVerdict(join(directory, 'config.json')))?.path, join(directory, 'config.json'));
      assert.equal(await readConfigVerdict(join(directory, 'other.json')), null);
      assert.equal(await readConfigVerdict(mixtralPath), null);
      const pack = join(directory, 'pack');
      await mkdir(pack);
      await copyFile(join(mixtralPath, 'config.json'), join(pack, 'config.json'));
      await writeFile(join(pack, 'manifest.json'), '{}');
      assert.equal(await readConfigVerdict(pack), null, 'a pack is no config.json alone');
      assert.deepEqual((await checkModel(directory)).found, 'mixtral, its weights are not there: runs');
      assert.equal((await checkModel(mixtralPath)).found, 'mixtral: runs');
      await mkdir(join(directory, 'dense'));
      await writeFile(join(directory, 'dense', 'config.json'), '{"architectures":["LlamaForCausalLM"]}');
      assert.equal((await checkModel(join(directory, 'dense'))).status, 'fail');
      assert.equal((await checkModel(join(directory, 'nothing'))).status, 'fail');
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
});
