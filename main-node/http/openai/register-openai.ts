import { OdmoeError } from '../../../shared/errors/odmoe-error.js';
import type { PrepareChat } from '../conversation/chat-request.js';
import { createPrepareChat } from '../conversation/prepare-chat.js';
import type { RegisterRoutes } from '../door-context.js';
import { registerChatRoutes } from './chat-routes.js';
import { registerCompletionRoutes } from './completion-routes.js';
import { registerModelRoutes } from './model-routes.js';
import { registerResponseRoutes } from './response-routes.js';

/** OpenAI's API. */
export const registerOpenAi: RegisterRoutes = (app, context) => {
  const { tokenizer } = context.model;
  const prepareChat = tokenizer === null ? refuseChat : createPrepareChat(tokenizer);
  registerModelRoutes(app, context);
  registerCompletionRoutes(app, context);
  registerChatRoutes(app, context, prepareChat);
  registerResponseRoutes(app, context, prepareChat);
};

const refuseChat: PrepareChat = () => {
  throw new OdmoeError(
    'TOKENIZER_INVALID',
    'the model has no tokenizer.json, so it holds no conversations; send token ids to /v1/completions',
  );
};
