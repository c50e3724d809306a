import assert from 'node:assert/strict';
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { verdictLine, verdictLines } from '../../cli/output/verdict-report.js';
import { checkModel } from '../../cli/doctor/model-check.js';
import { judgeConfig } from '../../packs/checkpoint/config-verdict.js';
import { readConfigVerdict } from '../../packs/read-config-verdict.js';
import { MODEL_FAMILIES } from '../../packs/checkpoint/model-config.js';
import { unreadArchitecture } from '../../packs/checkpoint/unread-architectures.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type Config, configOf } from './fixture-config.js';

const judge = (config: Config): ReturnType<typeof judgeConfig> => judgeConfig(config, 'config.json');
const mixtralPath = join(packageRoot(), 'test', 'fixtures', 'mixtral');

/** Objects of quantization_config that are not read, and their formats in words. */
const FORMATS: readonly (readonly [Config, string])[] = [
  [{ quant_method: 'hqq', nbits: 4 }, 'the format hqq'],
  [{ quant_method: 'bitsandbytes', load_in_4bit: true, quant_type: 'nf4' }, 'the format bitsandbytes, nf4'],
  [{ quant_method: 'mxfp8', activation_scheme: 'dynamic' }, 'the format mxfp8'],
  [
    { quant_method: 'fp8', moe_quant_algo: 'NVFP4', weight_block_size: [128, 128], producer: { name: 'modelopt' } },
    'the format NVFP4 beside FP8',
  ],
  [{ quant_algo: 'MIXED_PRECISION', moe_quant_algo: 'NVFP4', group_size: 16 }, 'the format MIXED_PRECISION, NVFP4'],
  [
    { quant_method: 'modelopt', quant_algo: 'MIXED_PRECISION', moe_quant_algo: 'NVFP4' },
    "the format NVFP4 beside NVIDIA's ModelOpt",
  ],
  [{ quant_method: 'modelopt', quant_algo: 'W4A8_AWQ', has_zero_point: true }, 'the format W4A8_AWQ of ModelOpt'],
  [
    { quant_method: 'modelopt', quantization: { quant_algo: 'INT4_AWQ', pre_quant_scale: true } },
    'the format INT4_AWQ of ModelOpt',
  ],
  [
    {
      quant_method: 'modelopt',
      quant_algo: 'MIXED_PRECISION',
      quantized_layers: { a: { quant_algo: 'FP8' }, b: { quant_algo: 'NVFP4_AWQ', group_size: 16 } },
    },
    'the format NVFP4_AWQ of ModelOpt',
  ],
  [
    { quant_method: 'gptq', bits: 3, group_size: 128 },
    'the format GPTQ: quantization_config.bits is 3, supported is 4 or 8',
  ],
  [
    { quant_method: 'fp8', weight_block_size: [32, 32], scale_fmt: 'ue8m0' },
    'the format FP8: quantization_config.weight_block_size is [32,32], supported is [128,128]',
  ],
  [{ group_size: 64, bits: 4 }, 'the format MLX'],
];

const UNREAD: readonly (readonly [architecture: string, missing: RegExp])[] = [
  ['DeepseekV41ForCausalLM', /n-grams .*several layers share/],
  ['KimiK3ForConditionalGeneration', /attention residuals.*SiTU/],
  ['LongcatFlashForCausalLM', /experts without a network.*two attentions/],
  ['BailingMoeV2ForCausalLM', /lacks a family that reads its keys and tensors$/],
  ['BailingMoeV2_5ForCausalLM', /lightning attention/],
  ['BailingMoeLinearV2ForCausalLM', /lightning attention/],
  ['BailingMoeV3VLForConditionalGeneration', /one output gate for each head/],
  ['MiniMaxText01ForCausalLM', /lightning attention/],
];

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
    const key = judge({ ...configOf('mixtral'), attention_sharpness: 2 });
    assert.deepEqual([key.verdict, key.missing], ['not-yet', []]);
    assert.match(verdictLine(key), /^does not run yet: .*attention_sharpness is 2/);
    const unknown = judge({ architectures: ['NobodyForCausalLM'], text_config: { num_experts: 4 } });
    assert.equal(unknown.verdict, 'not-yet');
    assert.match(verdictLine(unknown), /NobodyForCausalLM is not supported/);
  });

  it('names a format that is not read, by method and algorithm, whatever other keys there are', () => {
    for (const [quantization, format] of FORMATS) {
      const of = judge({ ...configOf('deepseekv4'), attention_sharpness: 2, quantization_config: quantization });
      assert.deepEqual([of.verdict, of.missing], ['not-yet', [format]], of.reason ?? '');
      assert.equal(verdictLine(of), `does not run yet: odmoe lacks ${format}`);
    }
  });

  it('names what the newest models need', () => {
    for (const [architecture, missing] of UNREAD) {
      const of = judge({ architectures: [architecture] });
      assert.equal(of.verdict, 'not-yet', architecture);
      assert.match(verdictLine(of), missing);
    }
  });

  it('calls no model dense whose name or keys speak of experts', () => {
    const named = judge({ architectures: ['NobodyMoeV9ForCausalLM'], text_config: { layer_group_size: 6 } });
    const typed = judge({ architectures: ['NobodyForCausalLM'], text_config: { model_type: 'nobody_moe' } });
    const keyed = judge({ model_type: 'nobody', ffn: { nExperts: 4 } });
    for (const of of [named, typed, keyed]) {
      assert.equal(of.verdict, 'not-yet');
      assert.match(verdictLine(of), /it is not known here which operators it needs/);
    }
    const off = judge({ architectures: ['NobodyForCausalLM'], num_experts: 0, moe_layers: [], expert_bias: null });
    assert.equal(off.verdict, 'never');
  });

  it('prints no text of a file that could pass for a line of ours', () => {
    const forged = 'X\n  verdict     runs\u001b[2J';
    for (const config of [
      { architectures: [forged] },
      { architectures: null, model_type: forged, num_experts: 4 },
      { architectures: Array.from({ length: 50 }, (_, at) => `${forged}${at}`), num_experts: 4 },
      { ...configOf('mixtral'), quantization_config: { quant_method: forged } },
      { ...configOf('mixtral'), quantization_config: { quant_method: 'modelopt', quant_algo: forged } },
      { ...configOf('mixtral'), [forged]: 2 },
      { ...configOf('mixtral'), hidden_act: forged },
    ]) {
      const lines = verdictLines('config.json', judge(config));
      assert.equal(lines.length, 3);
      for (const line of lines) {
        assert.equal(printableLine(line), line);
        assert.ok(line.length < 5000, `${line.length} characters`);
      }
    }
    assert.throws(
      () => judge({ ...configOf('laguna'), layer_types: [forged] }),
      (thrown: unknown) => thrown instanceof OdmoeError && printableLine(thrown.message) === thrown.message,
    );
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
      () => judge({ architectures: null, hidden_size: 8 }),
      (thrown: unknown) => thrown instanceof OdmoeError && /names no model, neither in/.test(thrown.message),
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
      await writeFile(
        join(directory, 'hf_quant_config.json'),
        '{"producer":{"name":"modelopt"},"quantization":{"quant_algo":"W4A8_AWQ"}}',
      );
      assert.deepEqual((await readConfigVerdict(directory))?.verdict.missing, ['the format W4A8_AWQ of ModelOpt']);
      await rm(join(directory, 'hf_quant_config.json'));
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
