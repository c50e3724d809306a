import { readBiasedRouter } from '../model-config/biased-router.js';
import type { ConfigReader } from '../model-config/config-reader.js';
import {
  modelConfig,
  readDecoder,
  readNormEpsilon,
  readSharedOrDense,
  readSwiglu,
  rotateHalves,
} from '../model-config/decoder-config.js';
import { checkIndexed, INDEXER_EXPLAINED, indexedNames } from '../model-config/indexer.js';
import { readLatentAttention } from '../model-config/latent-attention.js';
import { readLayerKinds, readSparseLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readStreamCount } from '../model-config/residual-streams.js';
import { expertForms } from '../model-config/tensor-names.js';
import type { IndexerShape, LatentMixer } from '../../shared/model/model-shape.js';

/** HY4: GLM-5's attention with sinks and gates of its values, and residual streams that are not mixed. */
export const hyV4: ModelFamily = {
  name: 'hy_v4',
  architectures: ['HYV4ForCausalLM'],
  explained: {
    ...INDEXER_EXPLAINED,
    enable_ihc: { why: 'it says that there are residual streams', only: [true] },
    enable_lm_head_fp32: { why: 'logits are always FP32' },
    gated_mla: { why: 'it says that the values of attention have gates', only: [true] },
    gating_type: { why: 'each value has a gate of its own', only: ['elementwise'] },
    learnable_sink: { why: 'it says that the files hold sinks', only: [true] },
    mtp_loss_factor: { why: 'it counts while a model is trained' },
    learnable_sink_init: { why: 'it is where the training of the sinks begins, whose values the files hold' },
  },
  readConfig(config) {
    const normEpsilon = readNormEpsilon(config, 1e-5);
    config.only('rope_interleave', [false], false);
    const { mixer: latent, rope } = readLatentAttention(config, 1536);
    const plain: LatentMixer = { ...latent, rotary: rotateHalves(0), sinks: true, outputGate: true };
    const mixer: LatentMixer = { ...plain, indexer: readIndexer(config, normEpsilon, latent.ropeSize) };
    checkIndexed(config);
    const sparse = readSparseLayers(config, (layer) => layer > 0);
    const routed = readBiasedRouter(config, {}, { groups: 1, groupsKept: 1, scale: 2.827 });
    const shared = config.countOr(1, 'n_shared_experts');
    // The first layer, and then every fourth one from the second on, have an indexer of their own.
    const indexers = readLayerKinds(
      config,
      ['full', 'shared'],
      (layer) => (layer === 0 || layer % 4 === 1 ? 'full' : 'shared'),
      { list: 'indexer_types', rule: [] },
    );
    const layers = readSharedOrDense(config, sparse, { mixer, routed, shared });
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [rope],
      layers: layers.map((layer, number) =>
        indexers[number] === 'shared' ? { ...layer, mixer: { ...plain, sharesIndexer: true } } : layer,
      ),
      // The shared experts and the dense networks have no limit.
      expert: {
        ...readSwiglu(config, ['moe_intermediate_size']),
        limit: Math.fround(Math.max(0, config.numberOr(10, 'swiglu_limit'))),
      },
      streams: {
        kind: 'added',
        ...readStreamCount(config),
        magnitude: Math.fround(config.positiveOr(2, 'hc_magnitude')),
      },
    });
    return modelConfig(config, shape, namesOf(config, mixer), { eos: 120_025 });
  },
};

/** The last dimensions of queries and keys are rotated, as many as those of the attention. */
function readIndexer(config: ConfigReader, normEpsilon: number, rotated: number): IndexerShape {
  const headDim = config.sizeOr(128, 'index_head_dim');
  if (rotated > headDim) {
    throw config.corrupt(`qk_rope_head_dim ${rotated} is more than index_head_dim ${headDim}`);
  }
  return {
    heads: config.sizeOr(16, 'index_n_heads'),
    headDim,
    positions: config.sizeOr(2048, 'index_topk'),
    normEpsilon,
    rotary: { ...rotateHalves(0), offset: headDim - rotated },
  };
}

function namesOf(config: ConfigReader, mixer: LatentMixer): ReturnType<typeof expertForms> {
  const names = indexedNames(config, mixer);
  const ofStreams = (part: 'attn' | 'mlp', tensor: string): string => `hc_${part}_layer.hc_pre.hc_${tensor}`;
  return expertForms(
    {
      ...names,
      model: {
        ...names.model,
        finalStreamMap: 'hc_head.hc_head_fn',
        finalStreamScale: 'hc_head.hc_head_scale',
        finalStreamBase: 'hc_head.hc_head_base',
      },
      layer: {
        ...names.layer,
        sinks: 'self_attn.learnable_sink_param',
        outputGate: 'self_attn.linear_gate.weight',
        mixerStreamMap: ofStreams('attn', 'fn'),
        mixerStreamScale: ofStreams('attn', 'scale'),
        mixerStreamBase: ofStreams('attn', 'base'),
        feedForwardStreamMap: ofStreams('mlp', 'fn'),
        feedForwardStreamScale: ofStreams('mlp', 'scale'),
        feedForwardStreamBase: ofStreams('mlp', 'base'),
      },
      // Layers that guess tokens.
      leftOut: [/^model\.mtp_layers\./],
    },
    'mlp.experts',
  );
}
