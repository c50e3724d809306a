import type { ChatMessage } from '../../../shared/rpc/messages.js';
import { PROBE_ASKED, PROBE_CALLED, PROBE_MARK } from '../../../shared/tokenizer/template-messages.js';
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

const [CALL] = PROBE_CALLED.toolCalls ?? [];
const RESULT: ChatMessage = {
  role: 'tool',
  content: `${PROBE_MARK}result`,
  toolCallId: CALL?.id ?? '',
  name: CALL?.name ?? '',
};
const TOOLS = [
  {
    type: 'function',
    function: {
      name: CALL?.name ?? '',
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
  const called = [PROBE_ASKED, PROBE_CALLED, RESULT];
  return {
    tools: shows(PROBE_MARK, [PROBE_ASKED], { tools: TOOLS }),
    calls: shows(`${PROBE_MARK}value`, called, { tools: TOOLS }),
    results: shows(`${PROBE_MARK}result`, called, { tools: TOOLS }),
    system: shows(PROBE_MARK, [{ role: 'system', content: PROBE_MARK }, PROBE_ASKED]),
  };
}
