import { ANY_OBJECT, jsonFormat } from '../../../shared/output-format/response-format.js';
import type { AnswerParser, PreparedChat, ResponseFormat } from '../conversation/chat-request.js';

/** What follows for an answer to a prompt that no chat template was applied to: all its text is content. */
export function plainAnswer(format: ResponseFormat | null): Pick<PreparedChat, 'outputFormat' | 'createParser'> {
  const schema = format?.kind === 'json_schema' ? format.schema : ANY_OBJECT;
  return {
    outputFormat: format === null ? null : jsonFormat(schema),
    createParser: () => PLAIN,
  };
}

const PLAIN: AnswerParser = {
  push: (text) => (text === '' ? [] : [{ kind: 'content', text }]),
  finish: () => [],
  lastCallWhole: false,
};
