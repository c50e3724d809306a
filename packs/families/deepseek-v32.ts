import { readBiasedRouter } from '../model-config/biased-router.js';
import { modelConfig, readDecoder, readSharedOrDense, readSwiglu } from '../model-config/decoder-config.js';
import { draftHeadBehindLast } from '../model-config/draft-heads.js';
import { checkIndexed, INDEXER_EXPLAINED, indexedNames, readIndexer } from '../model-config/indexer.js';
import { readLatentAttention } from '../model-config/latent-attention.js';
import { readListedOrBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { expertForms } from '../model-config/tensor-names.js';

/** DeepSeek-V3.2: DeepSeek-V3 whose rows attend only to the positions that an indexer chooses. */
export const deepseekV32: ModelFamily = {
  name: 'deepseek_v32',
  architectures: ['DeepseekV32ForCausalLM'],
  explained: INDEXER_EXPLAINED,
  readConfig(config) {
    const { mixer: plain, rope } = readLatentAttention(config, 1536);
    const mixer = { ...plain, indexer: readIndexer(config, { heads: 64, neighbours: false }) };
    checkIndexed(config);
    const routed = readBiasedRouter(config, {}, { groups: 8, groupsKept: 4, scale: 2.5 });
    const shared = config.countOr(1, 'n_shared_experts');
    const shape = readDecoder(config, {
      ropes: [rope],
      layers: readSharedOrDense(config, readListedOrBehindDense(config, 3), { mixer, routed, shared }),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const forms = expertForms(indexedNames(config, mixer), 'mlp.experts');
    return modelConfig(config, shape, forms, { eos: 1, draftHead: draftHeadBehindLast(shape, forms) });
  },
};
