import { layerOf, modelConfig, readAlways, readDecoder, readSwiglu, routerOf } from '../model-config/decoder-config.js';
import { deltaHybridNames, groupedDeltaNames, readDeltaHybrid } from '../model-config/delta-net.js';
import { draftHeadBeside } from '../model-config/draft-heads.js';
import { readSparseSteps } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms, zeroCentred } from '../model-config/tensor-names.js';

/** Qwen3-Next: gated delta nets, attention with an output gate, a shared expert with a gate. */
export const qwen3Next: ModelFamily = {
  name: 'qwen3_next',
  architectures: ['Qwen3NextForCausalLM'],
  explained: { use_qk_norm: { why: 'it is what is computed', only: [true] } },
  readConfig(config) {
    const hybrid = readDeltaHybrid(config);
    const { delta, attention, attentionLayers } = hybrid;
    const routed = routerOf({ normalize: config.flagOr(true, 'norm_topk_prob') });
    const sparseAlways = { glu: readSwiglu(config, ['shared_expert_intermediate_size']), gated: true };
    const layers = readSparseSteps(config).map((sparse, layer) =>
      layerOf(
        attentionLayers[layer] === true ? attention : delta,
        sparse ? { routed, always: sparseAlways } : { always: readAlways(config, 'intermediate_size') },
      ),
    );
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 10_000, headDim: attention.headDim, partialFactor: 0.25 })],
      layers,
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      model: { ...DECODER_NAMES.model, finalNorm: zeroCentred('norm.weight') },
      layer: {
        ...DECODER_NAMES.layer,
        ...deltaHybridNames(hybrid, shape.hiddenSize),
        ...groupedDeltaNames(delta, shape.hiddenSize),
        ...alwaysNames('mlp', 'mlp.shared_expert'),
        alwaysWeight: 'mlp.shared_expert_gate.weight',
      },
      leftOut: [/^mtp\./],
    };
    const forms = expertForms(names, 'mlp.experts');
    const layer = layerOf(attention, { routed, always: sparseAlways });
    return modelConfig(config, shape, forms, { eos: null, draftHead: draftHeadBeside(layer, forms, zeroCentred) });
  },
};
