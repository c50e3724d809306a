import type { Answer, PageConversation } from './conversation.js';

interface ChatMessage {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

/** Most alternatives that are requested for each token. */
const ALTERNATIVES = 5;

/** The body of the request for an answer: all turns before it. Answers that failed without text are left out. */
export function requestBody(conversation: PageConversation, answer: Answer): object {
  const index = conversation.turns.findIndex(({ id }) => id === answer.id);
  const { settings } = answer;
  const said = conversation.turns.slice(0, Math.max(0, index)).flatMap((turn): ChatMessage[] => {
    if (turn.kind === 'question') return [{ role: 'user', content: turn.text }];
    return turn.text === '' ? [] : [{ role: 'assistant', content: turn.text }];
  });
  const system: ChatMessage[] = settings.system === '' ? [] : [{ role: 'system', content: settings.system }];
  return {
    messages: [...system, ...said],
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    temperature: settings.temperature,
    top_p: settings.topP,
    ...(settings.maxTokens !== null && { max_tokens: settings.maxTokens }),
    seed: settings.seed,
    logprobs: true,
    top_logprobs: ALTERNATIVES,
  };
}
