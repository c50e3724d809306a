import type { AnswerParser, PreparedChat, ResponseFormat } from '../conversation/chat-request.js';

/** What follows for an answer to a prompt that no chat template was applied to: all its text is content. */
export function plainAnswer(format: ResponseFormat | null): Pick<PreparedChat, 'outputFormat' | 'createParser'> {
  const jsonSchema = format?.kind === 'json_schema' ? format.schema : '{"type": "object"}';
  return {
    outputFormat: format === null ? null : { alternatives: [{ parts: [{ kind: 'jsonSchema', jsonSchema }] }] },
    createParser: () => PLAIN,
  };
}

const PLAIN: AnswerParser = {
  push: (text) => (text === '' ? [] : [{ kind: 'content', text }]),
  finish: () => [],
  toolCalls: 0,
};
