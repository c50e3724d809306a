import { readBiasedRouter } from '../model-config/biased-router.js';
import type { ConfigReader } from '../model-config/config-reader.js';
import {
  modelConfig,
  readDecoder,
  readNormEpsilon,
  readSharedOrDense,
  readSwiglu,
} from '../model-config/decoder-config.js';
import { draftHeadBehindLast } from '../model-config/draft-heads.js';
import { checkIndexed, INDEXER_EXPLAINED, indexedNames, readIndexer } from '../model-config/indexer.js';
import { readLatentAttention } from '../model-config/latent-attention.js';
import { forLayers, listOfLayers, readGuessingLayers, readListedOrBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { expertForms } from '../model-config/tensor-names.js';

/** GLM-5: DeepSeek-V3.2's attention, of which layers may share the choice of an earlier one, and GLM-4.5's router. */
export const glmMoeDsa: ModelFamily = {
  name: 'glm_moe_dsa',
  architectures: ['GlmMoeDsaForCausalLM'],
  explained: INDEXER_EXPLAINED,
  readConfig(config) {
    const { mixer: plain, rope } = readLatentAttention(config, 2048);
    const mixer = { ...plain, indexer: readIndexer(config, { heads: 32, neighbours: true }) };
    checkIndexed(config);
    const routed = readBiasedRouter(config, {}, { groups: 1, groupsKept: 1, scale: 2.5 });
    const shared = config.countOr(1, 'n_shared_experts');
    const sharing = readSharingLayers(config);
    const layers = readSharedOrDense(config, readListedOrBehindDense(config, 3), { mixer, routed, shared });
    const shape = readDecoder(config, {
      normEpsilon: readNormEpsilon(config, 1e-5),
      ropes: [rope],
      layers: layers.map((layer, number) =>
        sharing[number] === true ? { ...layer, mixer: { ...plain, sharesIndexer: true } } : layer,
      ),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const forms = expertForms(indexedNames(config, mixer), 'mlp.experts');
    const head = draftHeadBehindLast(shape, forms);
    // The head's layer has an indexer of its own, also where the last layer of the model shares one.
    const draftHead = head === null ? null : { ...head, layer: { ...head.layer, mixer } };
    return modelConfig(config, shape, forms, { eos: 1, draftHead });
  },
};

/** True for the layers that share a choice: by a list, else by a pattern such as "FSFS", else by a frequency. */
function readSharingLayers(config: ConfigReader): boolean[] {
  const [list, pattern, every, offset] = [
    'indexer_types',
    'index_topk_pattern',
    'index_topk_freq',
    'index_skip_topk_offset',
  ] as const;
  if (config.has(list)) {
    config.idle(pattern, every, offset);
    return readKinds(config, list, config.textsOr([], list), ['full', 'shared']);
  }
  if (config.has(pattern)) {
    config.idle(every, offset);
    const kinds = config.isText(pattern) ? [...config.textOr('', pattern)] : config.textsOr([], pattern);
    return readKinds(config, pattern, kinds, config.isText(pattern) ? ['F', 'S'] : ['full', 'shared']);
  }
  const step = Math.max(config.countOr(1, every), 1);
  const skipped = config.countOr(2, offset);
  return forLayers(config, (layer) => Math.max(layer - skipped + 1, 0) % step !== 0);
}

function readKinds(config: ConfigReader, key: string, kinds: readonly string[], known: readonly string[]): boolean[] {
  const wrong = kinds.find((kind) => !known.includes(kind));
  if (wrong !== undefined) throw config.unsupported(key, wrong, known.join(' or '));
  const ofLayers = listOfLayers(config, key, kinds, readGuessingLayers(config)) ?? [];
  return ofLayers.map((kind) => kind === known[1]);
}
