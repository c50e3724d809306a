import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ChatMessage } from '../../shared/wire/messages.js';
import { PROBE_ASKED, PROBE_CALLED, PROBE_MARK } from '../../shared/language/tokenizer/template-forms.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

/** The parts of a conversation that a chat template writes into a prompt. */
export interface TemplateAbilities {
  /** The template writes the offered tools. */
  tools: boolean;
  /** The template writes an assistant's calls. */
  calls: boolean;
  /** The template writes messages of tools. */
  results: boolean;
  /** The error of the first of the small conversations that the template does not take; null: it takes all of them. */
  problem: OdmoeError | null;
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

/** Renders small conversations to find the abilities. A template that does not end is not tried again: it counts as having none. */
export function templateAbilities(tokenizer: Tokenizer): TemplateAbilities {
  let isEndless = false;
  let problem: OdmoeError | null = null;
  const shows = (mark: string, messages: ChatMessage[], values: Record<string, unknown> = {}): boolean => {
    try {
      return !isEndless && tokenizer.renderChat(messages, { values, wallMs: 0 }).includes(mark);
    } catch (thrown) {
      if (!(thrown instanceof OdmoeError)) throw thrown;
      isEndless = isTemplateFault(thrown);
      problem ??= thrown;
      return false;
    }
  };
  const called = [PROBE_ASKED, PROBE_CALLED, RESULT];
  const abilities = {
    tools: shows(PROBE_MARK, [PROBE_ASKED], { tools: TOOLS }),
    calls: shows(`${PROBE_MARK}value`, called, { tools: TOOLS }),
    results: shows(`${PROBE_MARK}result`, called, { tools: TOOLS }),
  };
  return { ...abilities, problem };
}

/** Tells whether the template itself is at fault, for any input. */
export function isTemplateFault(thrown: unknown): boolean {
  return thrown instanceof OdmoeError && thrown.code === 'TOKENIZER_INVALID';
}
