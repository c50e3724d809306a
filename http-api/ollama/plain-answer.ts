import { jsonFormat } from '../../shared/language/response-format.js';
import { type AnswerParser, type PreparedChat, type ResponseFormat, schemaOf } from '../conversation/chat-request.js';

/** What follows for an answer to a prompt that no chat template was applied to: all its text is content. */
export function plainAnswer(format: ResponseFormat | null): Pick<PreparedChat, 'outputFormat' | 'createParser'> {
  return {
    outputFormat: format === null ? null : jsonFormat(schemaOf(format)),
    createParser: () => PLAIN,
  };
}

const PLAIN: AnswerParser = {
  push: (text) => (text === '' ? [] : [{ kind: 'content', text }]),
  finish: () => [],
  lastCallWhole: false,
};
