import { someEntry } from '../model-config/some-entry.js';

/** Architectures that no family reads, with the reasons. `missing`: what odmoe lacks and may get; `never`: why no cluster could run them. */
type Unread = { readonly missing: readonly string[] } | { readonly never: string };

const CAPACITY: Unread = {
  never:
    'its experts have a capacity and drop tokens by what else is in the batch, so that no answer could be the same in every batch',
};

function lacks(...missing: readonly string[]): Unread {
  return { missing };
}

/** No operator is known to be missing. */
const NO_FAMILY = lacks('a family that reads its keys and tensors');
const LIGHTNING = lacks('lightning attention (linear attention with a fixed decay of each head)');
const LONGCAT_PARTS = [
  'experts without a network, which give back their input',
  'layers with two attentions and an expert part beside them',
] as const;
const LONGCAT = lacks(...LONGCAT_PARTS);
const LING_3 = lacks('latent attention with one output gate for each head');
const LLAMA_4 = lacks('attention in chunks', 'experts whose input the router scales');
const GROK = lacks("a soft limit of attention's scores");
const STEP_3 = lacks('attention with factored queries (multi-matrix factorization)');
const KIMI_K3 = lacks(
  'residuals that mix the outputs of earlier layers (attention residuals)',
  'the activation SiTU',
  'full-rank gates of Kimi delta attention',
);
const DEEPSEEK_V41 = lacks('layers of n-grams (engram)', 'attention to pools and choices that several layers share');

/**
 * By a value of `architectures`, or by `model_type`. The operators are those of the classes in transformers 5.18, and of the code that the models'
 * makers or vLLM and SGLang publish where transformers has no class.
 */
const UNREAD: Readonly<Record<string, Unread>> = {
  SwitchTransformersForConditionalGeneration: CAPACITY,
  switch_transformers: CAPACITY,
  NllbMoeForConditionalGeneration: CAPACITY,
  'nllb-moe': CAPACITY,
  Qwen4ExpForConditionalGeneration: lacks(
    'residual streams with gates of low rank',
    'layers of n-grams',
    'an indexer of averaged blocks of positions',
  ),
  InklingForConditionalGeneration: lacks(
    'attention by learned distances',
    'convolutions behind keys, values and branches',
  ),
  DeepseekV41ForCausalLM: DEEPSEEK_V41,
  deepseek_v41: DEEPSEEK_V41,
  KimiK3ForConditionalGeneration: KIMI_K3,
  KimiK3LinearForCausalLM: KIMI_K3,
  kimi_k3: KIMI_K3,
  LongcatFlashForCausalLM: LONGCAT,
  LongcatCausalLM: LONGCAT,
  longcat_flash: LONGCAT,
  LongcatFlashNgramForCausalLM: lacks(...LONGCAT_PARTS, 'embeddings of n-grams'),
  BailingMoeForCausalLM: NO_FAMILY,
  bailing_moe: NO_FAMILY,
  BailingMoeV2ForCausalLM: NO_FAMILY,
  bailing_moe_v2: NO_FAMILY,
  BailingMoeLinearForCausalLM: LIGHTNING,
  BailingMoELinearForCausalLM: LIGHTNING,
  BailingMoeLinearV2ForCausalLM: LIGHTNING,
  BailingMoeV2_5ForCausalLM: LIGHTNING,
  bailing_moe_linear: LIGHTNING,
  BailingMoeV3ForCausalLM: LING_3,
  BailingMoeV3VLForConditionalGeneration: LING_3,
  bailing_moe_v3_vl: LING_3,
  MiniMaxForCausalLM: LIGHTNING,
  MiniMaxText01ForCausalLM: LIGHTNING,
  MiniMaxM1ForCausalLM: LIGHTNING,
  MiniMaxVL01ForConditionalGeneration: LIGHTNING,
  JambaForCausalLM: lacks('Mamba-1 layers'),
  Llama4ForConditionalGeneration: LLAMA_4,
  Llama4ForCausalLM: LLAMA_4,
  JetMoeForCausalLM: lacks('attention whose heads are experts'),
  ArcticForCausalLM: lacks('a dense network with a residual of its own beside the experts'),
  Grok1ForCausalLM: GROK,
  Grok1ModelForCausalLM: GROK,
  Step3VLForConditionalGeneration: STEP_3,
  Step3TextForCausalLM: STEP_3,
  LLaDA2MoeModelLM: lacks('answers by diffusion, whose tokens do not come one behind another'),
  DbrxForCausalLM: NO_FAMILY,
  AriaForConditionalGeneration: NO_FAMILY,
  DeepseekVLV2ForCausalLM: NO_FAMILY,
  KimiVLForConditionalGeneration: NO_FAMILY,
  Glm4vMoeForConditionalGeneration: NO_FAMILY,
  Qwen3OmniMoeForConditionalGeneration: NO_FAMILY,
  Ernie4_5_VLMoeForConditionalGeneration: NO_FAMILY,
};

/** The first of the names that is known and not read; null: none is. */
export function unreadArchitecture(names: readonly string[]): ({ readonly name: string } & Unread) | null {
  const name = names.find((one) => Object.hasOwn(UNREAD, one));
  const unread = name === undefined ? undefined : UNREAD[name];
  return name === undefined || unread === undefined ? null : { name, ...unread };
}

/** True if the name of the model says that it has experts, or a key of its config, or of an object in it, that is not off. */
export function namesExperts(value: unknown): boolean {
  return someEntry(value, ({ key, value: inner }) => {
    if (key === 'model_type') return saysExperts(inner);
    if (key === 'architectures') return Array.isArray(inner) && inner.some(saysExperts);
    return saysExperts(key) && !isOff(inner);
  });
}

function saysExperts(name: unknown): boolean {
  return typeof name === 'string' && /expert|moe/i.test(name);
}

function isOff(value: unknown): boolean {
  return value === null || value === 0 || value === false || (Array.isArray(value) && value.length === 0);
}
