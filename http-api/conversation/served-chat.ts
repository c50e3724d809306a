import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { PrepareChat } from './chat-request.js';
import { createPrepareChat } from './prepare-chat.js';

/** Prepares conversations for the served model, which may have no text at all. */
export function prepareChatFor(tokenizer: Tokenizer | null): PrepareChat {
  return tokenizer === null ? refuseChat : createPrepareChat(tokenizer);
}

const refuseChat: PrepareChat = () => {
  throw new OdmoeError(
    'TOKENIZER_INVALID',
    'the model has no tokenizer.json, so it holds no conversations; send token ids to /v1/completions',
  );
};
