import { layerOf, modelConfig, readDecoder, readSwiglu, routerOf } from '../model-config/decoder-config.js';
import { deltaHybridNames, readDeltaHybrid, separateDeltaNames } from '../model-config/delta-net.js';
import { draftHeadBeside } from '../model-config/draft-heads.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms, zeroCentred } from '../model-config/tensor-names.js';

/** The text part of Qwen3.5-MoE and Qwen3.6-MoE: as Qwen3-Next, with separate projections and fused experts. */
export const qwen35Moe: ModelFamily = {
  name: 'qwen3_5_moe',
  architectures: ['Qwen3_5MoeForConditionalGeneration', 'Qwen3_5MoeForCausalLM'],
  explained: { use_qk_norm: { why: 'it is what is computed', only: [true] } },
  readConfig(whole) {
    const text = whole.within('text_config');
    const config = text === null ? whole : whole.picked('tie_word_embeddings', 'eos_token_id').beside(text);
    config.only('norm_topk_prob', [true], true);
    // Qwen3.8 says by what delta nets gate their output; the gate of attention is a sigmoid in all of them.
    config.only('output_gate_type', ['swish', 'silu'], 'swish');
    const hybrid = readDeltaHybrid(config);
    const { delta, attention, attentionLayers } = hybrid;
    const routed = routerOf({ normalize: true });
    const always = { glu: readSwiglu(config, ['shared_expert_intermediate_size']), gated: true };
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 10_000, headDim: attention.headDim, partialFactor: 0.25 })],
      layers: attentionLayers.map((full) => layerOf(full ? attention : delta, { routed, always })),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      prefix: text === null ? 'model.' : 'model.language_model.',
      model: { ...DECODER_NAMES.model, finalNorm: zeroCentred('norm.weight') },
      layer: {
        ...DECODER_NAMES.layer,
        ...deltaHybridNames(hybrid, shape.hiddenSize),
        ...separateDeltaNames(delta, shape.hiddenSize),
        ...alwaysNames('mlp', 'mlp.shared_expert'),
        alwaysWeight: 'mlp.shared_expert_gate.weight',
      },
      leftOut: [/^mtp\./, /^model\.visual\./],
    };
    const forms = expertForms(names, 'mlp.experts', 'fused');
    const layer = layerOf(attention, { routed, always });
    return modelConfig(config, shape, forms, { eos: null, draftHead: draftHeadBeside(layer, forms, zeroCentred) });
  },
};
