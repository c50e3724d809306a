import { tryExactJson } from '../json/exact-json.js';
import type { ChatMessage } from '../rpc/messages.js';
import { TemplateLimitError } from './template-budget.js';

/** How a template takes calls: the arguments as an object or as JSON, and what stands for a content that is not there. */
export interface CallForm {
  arguments: 'object' | 'text';
  noContent: '' | null;
}

const FORMS: readonly CallForm[] = [
  { arguments: 'object', noContent: '' },
  { arguments: 'object', noContent: null },
  { arguments: 'text', noContent: '' },
  { arguments: 'text', noContent: null },
];

/** Stands in the conversation by which templates are tried out. */
export const PROBE_MARK = 'odmoeprobe';
export const PROBE_ASKED: ChatMessage = { role: 'user', content: 'Hello' };
/** Some templates take ids of nine letters and digits only. */
export const PROBE_CALLED: ChatMessage = {
  role: 'assistant',
  content: '',
  toolCalls: [{ id: 'abcde1234', name: `${PROBE_MARK}name`, arguments: `{"${PROBE_MARK}key":"${PROBE_MARK}value"}` }],
};

/**
 * The first form that the template writes whole. transformers hands on what it is given, so published templates differ. Where none works it
 * is the first: the template then says itself what it does not take. Throws TemplateLimitError where the template does not end.
 */
export function chooseCallForm(source: string, render: (messages: readonly object[]) => string): CallForm {
  const works = (form: CallForm): boolean => {
    try {
      const text = render(templateMessages([PROBE_ASKED, PROBE_CALLED], source, form));
      // Arguments that were JSON already, and were made JSON once more, have quotes with backslashes. An object that is printed as it is
      // looks like Python's, and a content that is not there like its None.
      const wrong = [`\\"${PROBE_MARK}`, `'${PROBE_MARK}key': `, 'None'];
      return (
        ['name', 'key', 'value'].every((part) => text.includes(PROBE_MARK + part)) &&
        !wrong.some((sign) => text.includes(sign))
      );
    } catch (thrown) {
      if (thrown instanceof TemplateLimitError) throw thrown;
      return false;
    }
  };
  return FORMS.find(works) ?? { arguments: 'object', noContent: '' };
}

/** Messages as templates know them from OpenAI; members that hold nothing are not there. */
export function templateMessages(messages: readonly ChatMessage[], source: string, form: CallForm | null): object[] {
  const knowsDeveloper = /['"]developer['"]/.test(source);
  const knowsThinking = /\.thinking\b|\[['"]thinking['"]\]/.test(source);
  return messages.map(({ role, content, toolCalls = [], toolCallId = '', name = '', reasoningContent = '' }) => {
    const called = toolCalls.length > 0;
    const thought = reasoningContent !== '';
    return {
      role: role === 'developer' && !knowsDeveloper ? 'system' : role,
      content: content === '' && called && form !== null ? form.noContent : content,
      ...(called ? { tool_calls: toolCalls.map((call) => templateCall(call, form)) } : {}),
      ...(toolCallId === '' ? {} : { tool_call_id: toolCallId }),
      ...(name === '' ? {} : { name }),
      ...(thought ? { reasoning_content: reasoningContent } : {}),
      // gpt-oss's template refuses calls with both.
      ...(thought && knowsThinking && !(called && content !== '') ? { thinking: reasoningContent } : {}),
    };
  });
}

function templateCall(call: NonNullable<ChatMessage['toolCalls']>[number], form: CallForm | null): object {
  const text = call.arguments === '' ? '{}' : call.arguments;
  return {
    ...(call.id === '' ? {} : { id: call.id }),
    type: 'function',
    function: { name: call.name, arguments: form?.arguments === 'text' ? text : parsedArguments(text) },
  };
}

/** With all their digits, and in their order. Arguments that are no JSON stay as they are. */
function parsedArguments(text: string): unknown {
  const parsed = tryExactJson(text);
  return parsed === null ? text : parsed.value;
}
