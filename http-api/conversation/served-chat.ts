import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { PrepareChat } from './chat-request.js';
import { chatAbilities, createPrepareChat } from './prepare-chat.js';

/** Prepares conversations for the served model, which may have no text at all. Logs that its template fails where it is tried with tools. */
export function prepareChatFor(tokenizer: Tokenizer | null, log: Pick<Logger, 'warn'>): PrepareChat {
  if (tokenizer === null) return refuseChat;
  const prepareChat = createPrepareChat(tokenizer);
  const { problem } = tokenizer.hasChatTemplate ? chatAbilities(tokenizer) : { problem: null };
  if (problem !== null) {
    log.warn('the chat template fails where it is tried with tools; a message describes what it does not write', {
      code: problem.code,
      error: problem.message,
    });
  }
  return prepareChat;
}

const refuseChat: PrepareChat = () => {
  throw new OdmoeError(
    'TOKENIZER_INVALID',
    'the model has no tokenizer.json, so it holds no conversations; send token ids to /v1/completions',
  );
};
