/**
 * Byte-level tokenizers cut a text into words before they merge bytes. A GGUF file names the cut (tokenizer.ggml.pre), and the patterns stand in
 * programs only. The names are those of llama.cpp (src/llama-vocab.cpp); the patterns are those of the makers' tokenizer.json, which
 * llama.cpp quotes beside its own. Both are facts about the models.
 */
export interface GgufSplit {
  /** Applied one after the other; each cuts the parts that the one before left. Oniguruma's syntax, as in tokenizer.json. */
  readonly patterns: readonly string[];
  /** A word that is a token stays whole, whatever the merges say. */
  readonly ignoresMerges: boolean;
  /** Plain prompts begin with the token for a beginning, unless the file says otherwise. */
  readonly addsBos: boolean;
  /** The makers' tokenizer composes characters first. The file does not say it: Qwen's and OLMo's tokenizer.json do. */
  readonly composes: boolean;
}

const CONTRACTIONS = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)`;
const WORD = String.raw`[^\r\n\p{L}\p{N}]?\p{L}+`;
const SIGNS = String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*`;
const SPACES = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;

const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;
const LLAMA3 = String.raw`${CONTRACTIONS}|${WORD}|\p{N}{1,3}|${SIGNS}|${SPACES}`;
const QWEN2 = String.raw`${CONTRACTIONS}|${WORD}|\p{N}|${SIGNS}|${SPACES}`;
const QWEN35 = String.raw`${CONTRACTIONS}|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|${SPACES}`;

const CAPITALS = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const SMALL = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
const BEFORE_WORD = String.raw`[^\r\n\p{L}\p{N}]?`;
const MIXED_WORD = (capitals: string, small: string, ending: string): string =>
  `${BEFORE_WORD}${capitals}*${small}+${ending}|${BEFORE_WORD}${capitals}+${small}*${ending}`;
const GPT4O = String.raw`${MIXED_WORD(CAPITALS, SMALL, `${CONTRACTIONS}?`)}|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${SPACES}`;
const TEKKEN = String.raw`${MIXED_WORD(CAPITALS, SMALL, '')}|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${SPACES}`;

/** Kimi K2's pattern stands in its tokenization_kimi.py: words without Chinese characters, which form words of their own. */
const NOT_CHINESE = (letters: string): string => letters.replace(/\]$/u, String.raw`&&[^\p{Han}]]`);
const KIMI_WORD = MIXED_WORD(NOT_CHINESE(CAPITALS), NOT_CHINESE(SMALL), `${CONTRACTIONS}?`);
const KIMI = String.raw`[\p{Han}]+|${KIMI_WORD}|\p{N}{1,3}|${SIGNS}|${SPACES}`;

/** The letters with case that DeepSeek's first tokenizers list one by one (tokenizer.json of DeepSeek-V2-Lite). */
const DEEPSEEK_LETTERS =
  'A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377' +
  '\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556' +
  '\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a' +
  '\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4' +
  '\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc' +
  '\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f' +
  '\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b' +
  '\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a' +
  '\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}' +
  '\u{1e900}-\u{1e943}';
const DEEPSEEK_CHINESE = '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+';
const DEEPSEEK_LLM = [
  String.raw`[\r\n]`,
  String.raw`\s?[${DEEPSEEK_LETTERS}]+`,
  String.raw`\s?[!-/:-~${'\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002'}]+`,
  String.raw`\s+$`,
  DEEPSEEK_CHINESE,
  String.raw`\p{N}`,
];
const DEEPSEEK_CODER = [
  String.raw`[\r\n]`,
  String.raw`\s?\p{L}+`,
  String.raw`\s?\p{P}+`,
  DEEPSEEK_CHINESE,
  String.raw`\p{N}`,
];
const DEEPSEEK3 = [
  String.raw`\p{N}{1,3}`,
  '[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+',
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+' +
    String.raw`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|${SPACES}`,
];
const BAILING = String.raw`'(?i:[sdmt]|ll|ve|re)|${WORD}|\p{N}|${SIGNS}|\s*[\r\n]|\s+(?!\S)|\s+`;
const SEED_CODER = String.raw`${CONTRACTIONS}|${WORD}|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|${SPACES}`;
const EXAONE_MOE =
  String.raw`${CONTRACTIONS}|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?` +
  String.raw`|\s*[\r\n]|\s+(?!\S)|\s+`;
const MINICPM5 = String.raw`${CONTRACTIONS}|${WORD}|\p{N}+|${SIGNS}|${SPACES}`;
/** llama.cpp's own cut for files that say "default". */
const DEFAULT = [String.raw`[\p{P}$+<=>^~|]+`, GPT2, String.raw`\p{N}+`, '[0-9][0-9][0-9]'];

/** Names with one cut. */
interface Named extends Partial<Omit<GgufSplit, 'patterns'>> {
  readonly names: readonly string[];
  readonly patterns: readonly string[];
}

const SPLITS: readonly Named[] = [
  { names: ['default'], patterns: DEFAULT },
  {
    names: ['gpt-2', 'phi-2', 'mpt', 'gigachat', 'a.x-4.0', 'mellum', 'exaone4', 'jais', 'trillion', 'granite-docling'],
    patterns: [GPT2],
  },
  { names: ['olmo'], patterns: [GPT2], composes: true },
  {
    names: ['smollm', 'starcoder', 'refact', 'command-r', 'codeshell', 'exaone', 'minerva-7b', 'mellum2'],
    patterns: [String.raw`\p{N}`, GPT2],
  },
  {
    names: ['llama3', 'llama-v3', 'llama-bpe', 'falcon3', 'falcon-h1', 'pixtral', 'midm-2.0', 'lfm2'],
    patterns: [LLAMA3],
    ignoresMerges: true,
    addsBos: true,
  },
  { names: ['dbrx', 'smaug-bpe', 'glm4', 'chatglm-bpe'], patterns: [LLAMA3] },
  { names: ['qwen2', 'deepseek-r1-qwen'], patterns: [QWEN2], composes: true },
  { names: ['qwen35'], patterns: [QWEN35], composes: true },
  { names: ['hunyuan', 'megrez', 'kormo', 'stablelm2', 'solar-open', 'grok-2'], patterns: [QWEN2] },
  { names: ['deepseek-llm'], patterns: DEEPSEEK_LLM },
  { names: ['deepseek-coder'], patterns: DEEPSEEK_CODER },
  { names: ['deepseek-v3', 'hunyuan-dense', 'hy_v4', 'joyai-llm'], patterns: DEEPSEEK3 },
  { names: ['tekken'], patterns: [TEKKEN], ignoresMerges: true, addsBos: true },
  { names: ['gpt-4o', 'llama4', 'kanana2', 'minimax-m2'], patterns: [GPT4O] },
  { names: ['tiny_aya', 'cohere2moe'], patterns: [String.raw`\d{1,3}(?=(?:\d{3})*\b)`, GPT4O] },
  { names: ['kimi-k2'], patterns: [KIMI] },
  { names: ['bailingmoe', 'bailingmoe2', 'llada-moe'], patterns: [BAILING] },
  { names: ['seed-coder'], patterns: [SEED_CODER] },
  { names: ['exaone-moe'], patterns: [EXAONE_MOE] },
  { names: ['minicpm5'], patterns: [String.raw`\p{N}{1,3}`, MINICPM5], ignoresMerges: true },
];

/** All cuts that are known, by their name in a GGUF file. */
export const GGUF_SPLITS: ReadonlyMap<string, GgufSplit> = new Map(
  SPLITS.flatMap(({ names, ...split }) =>
    names.map((name) => [name, { ignoresMerges: false, addsBos: false, composes: false, ...split }] as const),
  ),
);
