import type { ConfigReader } from '../model-config/config-reader.js';
import {
  inverseRoot,
  layerOf,
  modelConfig,
  readDecoder,
  routerOf,
  withoutExperts,
} from '../model-config/decoder-config.js';
import { readGlobalLayers } from '../model-config/global-layers.js';
import type { ModelFamily } from '../model-config/model-family.js';
import type { GluShape } from '../../shared/model/model-shape.js';
import { DECODER_NAMES, fusedExpertNames } from '../model-config/tensor-names.js';

/** The text part of Gemma-4 with experts: a dense network beside the experts, each with its own norms; two kinds of attention. */
export const gemma4: ModelFamily = {
  name: 'gemma4',
  architectures: ['Gemma4ForConditionalGeneration', 'Gemma4ForCausalLM'],
  explained: {
    vocab_size_per_layer_input: { why: 'no layer has inputs of its own, as hidden_size_per_layer_input is 0' },
    hidden_act: { why: 'it is what is computed', only: ['gelu_pytorch_tanh'] },
    use_qk_norm: { why: 'it is what is computed', only: [true] },
  },
  readConfig(whole) {
    const text = whole.within('text_config');
    const config = text === null ? whole : whole.picked('tie_word_embeddings', 'eos_token_id').beside(text);
    config.only('norm_topk_prob', [true], true);
    if (!config.flagOr(false, 'enable_moe_block')) throw withoutExperts(config, 'enable_moe_block is not true: ');
    config.only('hidden_size_per_layer_input', [0], 256);
    config.only('num_kv_shared_layers', [0], 0);
    config.only('use_double_wide_mlp', [false], false);
    config.only('use_bidirectional_attention', ['vision'], 'vision');
    const { mixers, ropes } = readGlobalLayers(config);
    const always = { glu: readGelu(config, 'intermediate_size'), gated: false };
    const routed = routerOf({ normalize: true, expertScale: true });
    const hidden = config.size('hidden_size');
    const shape = readDecoder(config, {
      embeddingScale: Math.fround(Math.sqrt(hidden)),
      logitCap: Math.fround(config.positiveOr(null, 'final_logit_softcapping') ?? 0),
      ropes,
      layers: mixers.map((mixer) =>
        layerOf(mixer, {
          always,
          routed,
          routedNorm: true,
          routerNorm: true,
          mixerOutputNorm: true,
          alwaysOutputNorm: true,
          routedOutputNorm: true,
          feedForwardOutputNorm: true,
          layerScale: true,
        }),
      ),
      expert: readGelu(config, 'moe_intermediate_size'),
    });
    const names = {
      ...DECODER_NAMES,
      prefix: text === null ? 'model.' : 'model.language_model.',
      layer: {
        ...DECODER_NAMES.layer,
        mixerOutputNorm: 'post_attention_layernorm.weight',
        feedForwardNorm: 'pre_feedforward_layernorm.weight',
        routedNorm: 'pre_feedforward_layernorm_2.weight',
        alwaysOutputNorm: 'post_feedforward_layernorm_1.weight',
        routedOutputNorm: 'post_feedforward_layernorm_2.weight',
        feedForwardOutputNorm: 'post_feedforward_layernorm.weight',
        layerScale: 'layer_scalar',
        router: 'router.proj.weight',
        routerNorm: { name: 'router.scale', slice: { multiply: inverseRoot(hidden) } },
        expertScale: 'router.per_expert_scale',
      },
      expert: fusedExpertNames('experts.gate_up_proj', 'experts.down_proj'),
      leftOut: [/^model\.(vision_tower|audio_tower|embed_vision|embed_audio)\./],
    };
    return modelConfig(config, shape, names, { tied: true, eos: 1 });
  },
};

function readGelu(config: ConfigReader, key: string): GluShape {
  config.only('hidden_activation', ['gelu_pytorch_tanh'], 'gelu_pytorch_tanh');
  return { intermediateSize: config.size(key), activation: 'tanh', alpha: 1, limit: 0, upOffset: 0, bias: false };
}
