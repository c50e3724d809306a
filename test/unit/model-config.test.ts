import assert from 'node:assert/strict';
import fc from 'fast-check';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import type { AttentionMixer } from '../../shared/model/model-shape.js';
import { ropeShape } from '../../packs/model-config/rope-frequencies.js';
import { TINY_CONFIG } from './tiny-checkpoint.js';

function parse(change: Record<string, unknown>): ReturnType<typeof parseModelConfig>['config'] {
  return parseModelConfig({ ...TINY_CONFIG, ...change }, 'config.json').config;
}

function attention(change: Record<string, unknown>): AttentionMixer {
  const mixer = parse(change).shape.layers[0]?.mixer;
  assert.ok(mixer?.kind === 'attention');
  return mixer;
}

function refuses(change: Record<string, unknown>, code: ErrorCode, message: RegExp): void {
  assert.throws(
    () => parse(change),
    (thrown: unknown) => thrown instanceof OdmoeError && thrown.code === code && message.test(thrown.message),
    JSON.stringify(change),
  );
}

describe('a Mixtral config.json', () => {
  it('is read in the older form', () => {
    const change = { rope_theta: 12345, torch_dtype: 'bfloat16' };
    assert.deepEqual(parse(change).shape.ropes, [ropeShape(12345, 4, { type: 'default' })]);
    assert.equal(attention(change).headDim, 4);
  });

  it('is read in the newer form', () => {
    const change = {
      rope_theta: undefined,
      rope_parameters: { rope_theta: 777, rope_type: 'default' },
      dtype: 'bfloat16',
      head_dim: 8,
    };
    assert.deepEqual(parse(change).shape.ropes, [ropeShape(777, 8, { type: 'default' })]);
    assert.equal(attention(change).headDim, 8);
  });

  it('gets the defaults of transformers', () => {
    const change = { rope_theta: undefined, head_dim: null, num_key_value_heads: null, sliding_window: null };
    const { shape, tiedEmbeddings } = parse(change);
    assert.deepEqual(shape.ropes, [ropeShape(1e6, 4, { type: 'default' })]);
    const { headDim, keyValueHeads, window } = attention(change);
    assert.deepEqual([headDim, keyValueHeads, window], [4, 4, 0]);
    assert.equal(shape.normEpsilon, Math.fround(1e-5));
    assert.equal(shape.layers[0]?.routed?.normalize, true);
    assert.equal(tiedEmbeddings, false);
  });

  it('may have one end-of-sequence token, several, or none', () => {
    assert.deepEqual(parse({ eos_token_id: 7 }).eosTokenIds, [7]);
    assert.deepEqual(parse({ eos_token_id: [7, 9] }).eosTokenIds, [7, 9]);
    assert.deepEqual(parse({ eos_token_id: null }).eosTokenIds, []);
  });

  it('may have a sliding window and tied embeddings', () => {
    assert.equal(attention({ sliding_window: 32 }).window, 32);
    assert.equal(parse({ tie_word_embeddings: true }).tiedEmbeddings, true);
  });

  it('is refused for unsupported values, and the error names the supported ones', () => {
    refuses({ architectures: ['LlamaForCausalLM'] }, 'MODEL_UNSUPPORTED', /LlamaForCausalLM.*supported: Mixtral/);
    refuses({ architectures: undefined, model_type: 'llama' }, 'MODEL_UNSUPPORTED', /llama/);
    refuses({ hidden_act: 'gelu' }, 'MODEL_UNSUPPORTED', /"gelu"/);
    refuses({ rope_scaling: { type: 'spiral' } }, 'MODEL_UNSUPPORTED', /rope_scaling.rope_type is "spiral"/);
    refuses({ rope_parameters: { rope_type: 'ntk' } }, 'MODEL_UNSUPPORTED', /rope_parameters.rope_type is "ntk"/);
    refuses({ quantization_config: { quant_method: 'gptq' } }, 'MODEL_UNSUPPORTED', /quantized/);
  });

  it('is recognized by model_type where no architecture is named', () => {
    assert.equal(parse({ architectures: null }).shape.layers.length, 2);
  });

  it('is refused for values that are missing, of the wrong type, or contradictory', () => {
    refuses({ architectures: [], model_type: null }, 'MODEL_CORRUPT', /names no model, neither in architectures/);
    refuses({ hidden_size: undefined }, 'MODEL_CORRUPT', /hidden_size/);
    refuses({ num_hidden_layers: '2' }, 'MODEL_CORRUPT', /num_hidden_layers/);
    refuses({ vocab_size: 0 }, 'MODEL_CORRUPT', /vocab_size/);
    refuses({ vocab_size: 2 ** 60 }, 'MODEL_CORRUPT', /vocab_size/);
    refuses({ rms_norm_eps: -1 }, 'MODEL_CORRUPT', /rms_norm_eps/);
    refuses({ num_experts_per_tok: 4 }, 'MODEL_CORRUPT', /4 experts per token are more than the 3/);
    refuses({ num_key_value_heads: 3 }, 'MODEL_CORRUPT', /not a multiple of 3/);
    refuses({ head_dim: 5 }, 'MODEL_CORRUPT', /odd/);
    refuses({ hidden_size: 18 }, 'MODEL_CORRUPT', /no head_dim/);
    refuses({ architectures: 'MixtralForCausalLM' }, 'MODEL_CORRUPT', /architectures/);
    for (const eos of [-1, 1.5, 2 ** 31, '</s>', true, [2, -1]]) {
      refuses(
        { eos_token_id: eos },
        'MODEL_CORRUPT',
        /eos_token_id is .*, expected a token id or a list of them \(whole numbers from 0 to 2147483647.*or null if there is no such token; correct/,
      );
    }
  });

  it('causes no errors but our own, whatever JSON it holds', () => {
    const key = fc.constantFrom(...Object.keys(TINY_CONFIG));
    fc.assert(
      fc.property(key, fc.jsonValue(), fc.jsonValue(), (name, value, whole) => {
        for (const config of [{ ...TINY_CONFIG, [name]: value }, whole]) {
          try {
            parseModelConfig(config, 'config.json');
          } catch (thrown) {
            assert.ok(thrown instanceof OdmoeError && thrown.code.startsWith('MODEL_'), String(thrown));
          }
        }
      }),
    );
  });
});
