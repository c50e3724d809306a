import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { chatTemplateFrom } from '../../shared/language/tokenizer/chat-template.js';

/** A tokenizer that has only a chat template and the names of special tokens. */
export function templateTokenizer(source: string, specialNames: readonly string[] = []): Tokenizer {
  const template = chatTemplateFrom({ bos_token: '<bos>', eos_token: '<eos>' }, source, '/model');
  if (template === null) throw new Error('no template');
  const none = (): never => {
    throw new Error('not in this test');
  };
  return {
    encode: none,
    encodeRendered: none,
    encodeChat: none,
    decode: none,
    renderChat: (messages, context) => template.render(messages, context),
    isSpecial: (tokenId) => tokenId < specialNames.length,
    tokenBytes: (tokenId) => Buffer.from(specialNames[tokenId] ?? ''),
    hasChatTemplate: true,
    chatTemplateSource: source,
    vocabularySize: specialNames.length,
    longestTokenBytes: Infinity,
  };
}
