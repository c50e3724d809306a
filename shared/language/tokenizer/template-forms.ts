import type { ChatMessage } from '../../wire/messages.js';
import { RecentMap } from '../../base/runtime/recent-map.js';
import { TemplateLimitError } from '../jinja/template-budget.js';
import {
  type CallForm,
  type ContentForm,
  type MessageForms,
  type OddArguments,
  oddArgumentsOf,
  type OddForm,
  templateMessages,
} from './template-messages.js';

/** Writes messages with the template; throws the errors that the template raises. */
export type WriteMessages = (messages: readonly object[]) => string;

const CONTENT_FORMS: readonly ContentForm[] = ['text', 'list'];
const CALL_FORMS: readonly CallForm[] = [
  { arguments: 'object', noContent: '' },
  { arguments: 'object', noContent: null },
  { arguments: 'text', noContent: '' },
  { arguments: 'text', noContent: null },
];
const ODD_FORMS: readonly OddForm[] = ['value', 'text', 'property'];

/** Most roles whose forms are remembered: more than exist. */
const ROLES_LIMIT = 16;

/** A mark in the conversations with which templates are tried. */
export const PROBE_MARK = 'odmoeprobe';
/** Some templates accept only ids of nine letters and digits. */
const CALL_ID = 'abcde1234';
const CALLED_NAME = `${PROBE_MARK}name`;
export const PROBE_ASKED: ChatMessage = { role: 'user', content: 'Hello' };
export const PROBE_CALLED: ChatMessage = called(`{"${PROBE_MARK}key":"${PROBE_MARK}value"}`);

/** Sample arguments of each kind, and a pattern for the output of a template that accepts them. */
const ODD_SAMPLES: Readonly<Record<OddArguments, { text: string; sign: RegExp }>> = {
  text: { text: `{"${PROBE_MARK}value`, sign: new RegExp(`${PROBE_MARK}value`) },
  list: { text: `["${PROBE_MARK}value"]`, sign: new RegExp(`${PROBE_MARK}value`) },
  number: { text: '7340915286', sign: /7340915286/ },
  boolean: { text: 'true', sign: /true/i },
  null: { text: 'null', sign: /null|none/i },
};

/**
 * The forms in which a template accepts contents, calls, and arguments that are not objects. They are found by trials with marks in place of
 * words, each when it is first needed. The first form that the template writes completely is used. transformers passes values on unchanged, so
 * published templates differ. If no form works, the first one is used, and the template itself reports the error.
 */
export class TemplateForms implements MessageForms {
  readonly contents = new RecentMap<string, ContentForm>(ROLES_LIMIT);
  readonly odd = new Map<OddArguments, OddForm>();
  private foundCalls: CallForm | null = null;

  /** `source`: the template's text. */
  constructor(private readonly source: string) {}

  get calls(): CallForm | null {
    return this.foundCalls;
  }

  /** The messages in the forms that the template accepts. Throws TemplateLimitError if the template does not end. */
  shaped(messages: readonly ChatMessage[], write: WriteMessages): object[] {
    for (const { role } of messages) this.findContent(role, write);
    if (messages.some(({ toolCalls = [] }) => toolCalls.length > 0)) {
      const { arguments: taken } = this.findCalls(write);
      if (taken === 'object') for (const kind of oddArgumentsOf(messages)) this.findOdd(kind, write);
    }
    return templateMessages(messages, this.source, this);
  }

  private findContent(role: string, write: WriteMessages): void {
    if (this.contents.has(role)) return;
    const message: ChatMessage = { role, content: `${PROBE_MARK}word` };
    const conversation = this.conversationWith(message, write);
    const works = (form: ContentForm): boolean => {
      const contents = new Map([...this.contents, [role, form]]);
      const text = this.written(conversation, { contents, calls: this.calls, odd: this.odd }, write);
      // A list part that is printed as a value has quotes around its words.
      return text?.includes(message.content) === true && (form === 'text' || !QUOTED_WORD.test(text));
    };
    this.contents.set(role, CONTENT_FORMS.find(works) ?? 'text');
  }

  /** A conversation that may contain a message of the role. */
  private conversationWith(message: ChatMessage, write: WriteMessages): ChatMessage[] {
    if (message.role === 'user') return [message];
    this.findContent('user', write);
    if (message.role === 'assistant') return [PROBE_ASKED, message, PROBE_ASKED];
    if (message.role !== 'tool') return [message, PROBE_ASKED];
    this.findCalls(write);
    return [PROBE_ASKED, PROBE_CALLED, { ...message, toolCallId: CALL_ID, name: CALLED_NAME }];
  }

  private findCalls(write: WriteMessages): CallForm {
    if (this.foundCalls !== null) return this.foundCalls;
    this.findContent('assistant', write);
    const works = (calls: CallForm): boolean => {
      const text = this.written([PROBE_ASKED, PROBE_CALLED], { contents: this.contents, calls, odd: this.odd }, write);
      // JSON arguments that were encoded as JSON again have quotes with backslashes. An object that is printed as a value looks like Python's,
      // and an absent content like its None.
      const wrong = [`\\"${PROBE_MARK}`, `'${PROBE_MARK}key': `, 'None'];
      return (
        text !== null &&
        ['name', 'key', 'value'].every((part) => text.includes(PROBE_MARK + part)) &&
        !wrong.some((sign) => text.includes(sign))
      );
    };
    return (this.foundCalls = CALL_FORMS.find(works) ?? { arguments: 'object', noContent: '' });
  }

  private findOdd(kind: OddArguments, write: WriteMessages): void {
    if (this.odd.has(kind)) return;
    const { text: sample, sign } = ODD_SAMPLES[kind];
    const works = (form: OddForm): boolean => {
      const odd = new Map([...this.odd, [kind, form]]);
      const text = this.written(
        [PROBE_ASKED, called(sample)],
        { contents: this.contents, calls: this.calls, odd },
        write,
      );
      return text !== null && sign.test(text);
    };
    this.odd.set(kind, ODD_FORMS.find(works) ?? 'value');
  }

  /** Null: the template refuses the messages. */
  private written(messages: readonly ChatMessage[], forms: MessageForms, write: WriteMessages): string | null {
    try {
      return write(templateMessages(messages, this.source, forms));
    } catch (thrown) {
      if (thrown instanceof TemplateLimitError) throw thrown;
      return null;
    }
  }
}

const QUOTED_WORD = new RegExp(`['"]${PROBE_MARK}word['"]`);

function called(args: string): ChatMessage {
  return { role: 'assistant', content: '', toolCalls: [{ id: CALL_ID, name: CALLED_NAME, arguments: args }] };
}
