export { loadTokenizer, openTokenizer } from './load-tokenizer.js';
export { StreamingDetokenizer } from './streaming-detokenizer.js';
export type { Tokenizer } from './tokenizer.js';
