import type { ChatMessage } from '../../../shared/rpc/messages.js';
import type { Tokenizer } from '../../../shared/tokenizer/tokenizer.js';

/** What a chat template writes into a prompt. */
export interface TemplateAbilities {
  /** Tools that it is given. */
  tools: boolean;
  /** An assistant's calls. */
  calls: boolean;
  /** Messages of tools. */
  results: boolean;
  /** A system message. */
  system: boolean;
}

const MARK = 'odmoeprobe';
const USER: ChatMessage = { role: 'user', content: 'Hello' };
/** Some templates take ids of nine letters and digits only. */
const CALL: ChatMessage = {
  role: 'assistant',
  content: '',
  toolCalls: [{ id: 'abcde1234', name: MARK, arguments: `{"a":"${MARK}-argument"}` }],
};
const RESULT: ChatMessage = { role: 'tool', content: `${MARK}-result`, toolCallId: 'abcde1234', name: MARK };
const TOOLS = [
  {
    type: 'function',
    function: {
      name: MARK,
      description: 'Does nothing.',
      parameters: { type: 'object', properties: { a: { type: 'string', description: 'A word.' } }, required: ['a'] },
    },
  },
];

/** Tried out on small conversations. */
export function templateAbilities(tokenizer: Tokenizer): TemplateAbilities {
  const shows = (mark: string, messages: ChatMessage[], values: Record<string, unknown> = {}): boolean => {
    try {
      return tokenizer.renderChat(messages, { values, wallMs: 0 }).includes(mark);
    } catch {
      return false;
    }
  };
  return {
    tools: shows(MARK, [USER], { tools: TOOLS }),
    calls: shows(`${MARK}-argument`, [USER, CALL, RESULT], { tools: TOOLS }),
    results: shows(`${MARK}-result`, [USER, CALL, RESULT], { tools: TOOLS }),
    system: shows(MARK, [{ role: 'system', content: MARK }, USER]),
  };
}
