import type { ChatMessage, OutputFormat, TemplateArgument } from '../../shared/wire/messages.js';
import { templateValues } from '../../shared/wire/template-arguments.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { createAnswerParser, opensReasoning } from './answer-parser.js';
import { HERMES, type CallSyntax } from './call-syntax.js';
import { type ChatRequest, type ChatTool, type PrepareChat, schemaOf } from './chat-request.js';
import { checkChat } from './check-chat.js';
import { detectStyle, hasSpecialMarkers, type ChatStyle } from './detect-style.js';
import { afterThinking, callForms, jsonForms, type ThinkingState } from './forced-format.js';
import { plainMessages, toolJson, withDescribedTools } from './plain-messages.js';
import { isTemplateFault, templateAbilities, type TemplateAbilities } from './template-abilities.js';
import { createHash } from 'node:crypto';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** The features of a model's template that clients can use. */
export interface ChatAbilities {
  /** native: the template takes tools. fallback: a message describes them. */
  tools: 'native' | 'fallback';
  /** The model can think before it answers. */
  thinking: boolean;
  /** The error of the template where it was tried with tools, so that a message describes tools or calls in its place; null: there is none. */
  problem: OdmoeError | null;
}

/** Limits for the render that finds the prompt's end: messages, and characters of each. */
const TAIL_MESSAGES = 8;
const TAIL_CHARACTERS = 64;
const HELLO: ChatMessage = { role: 'user', content: 'Hello' };

/** Facts about the served model. */
interface ChatModel {
  tokenizer: Tokenizer;
  style: ChatStyle;
  abilities: TemplateAbilities;
  /** True: the template takes tools, and the calls in answers can be read. */
  native: boolean;
  /** The form of calls: the model's own, or the one that a message describes to it. */
  syntax: CallSyntax;
  shortIds: boolean;
  /** True: its prompts open the reasoning, unless a variable says otherwise. */
  alwaysThinks: boolean;
}

export function createPrepareChat(tokenizer: Tokenizer): PrepareChat {
  const model = chatModelOf(tokenizer);
  return (chat) => {
    checkChat(chat);
    return prepare(model, chat);
  };
}

export function chatAbilities(tokenizer: Tokenizer): ChatAbilities {
  const { native, style, abilities } = chatModelOf(tokenizer);
  return { tools: native ? 'native' : 'fallback', thinking: canThink(style), problem: abilities.problem };
}

const models = new WeakMap<Tokenizer, ChatModel>();

/** Computed once for each tokenizer. */
function chatModelOf(tokenizer: Tokenizer): ChatModel {
  const model = models.get(tokenizer) ?? chatModel(tokenizer);
  models.set(tokenizer, model);
  return model;
}

function chatModel(tokenizer: Tokenizer): ChatModel {
  const source = tokenizer.chatTemplateSource ?? '';
  const style = detectStyle(source, specialNames(tokenizer));
  const abilities = templateAbilities(tokenizer);
  const native = abilities.tools && (style.calls !== null || style.harmony);
  return {
    tokenizer,
    style,
    abilities,
    native,
    syntax: style.calls ?? HERMES,
    shortIds: wantsShortIds(source),
    alwaysThinks: thinkingState({ tokenizer, style }, [HELLO], []) === 'open',
  };
}

function specialNames(tokenizer: Tokenizer): Set<string> {
  const names = new Set<string>();
  for (let id = 0; id < tokenizer.vocabularySize; id++) {
    if (tokenizer.isSpecial(id)) names.add(Buffer.from(tokenizer.tokenBytes(id)).toString('utf8'));
  }
  return names;
}

function prepare(model: ChatModel, chat: ChatRequest): ReturnType<PrepareChat> {
  const tools = chat.toolChoice === 'none' ? [] : chat.tools;
  const messages = promptMessages(model, chat.messages, tools);
  const fault = thinkingFault(chat.thinking, model);
  if (fault !== null && !(chat.isThinkingHint ?? false)) {
    throw new OdmoeError('REQUEST_INVALID', `${fault}; leave it out`, { field: 'thinking' });
  }
  const templateArguments = [
    ...chat.templateArguments,
    ...thinkingArguments(chat.thinking, model.style, chat.templateArguments),
    ...(model.native && tools.length > 0 ? [toolsArgument(tools)] : []),
  ];
  const { continueLast } = chat;
  const style = { ...model.style, calls: tools.length > 0 ? model.syntax : null };
  const continued = continueLast ? (messages.at(-1)?.content ?? '') : null;
  return {
    request: { messages, templateArguments, continueLast, showSpecialTokens: hasSpecialMarkers(style) },
    outputFormat: outputFormatOf(model, chat, tools, { messages, templateArguments }),
    warnings: fault === null ? [] : [`thinking: ${fault}`],
    createParser: (promptEnd, answer) =>
      createAnswerParser({
        style,
        tools,
        singleCall: !chat.parallelToolCalls,
        forced: isForced(chat),
        promptEnd,
        continued,
        idOf: callIdsFor(chat.messages, answer),
      }),
  };
}

function promptMessages(model: ChatModel, given: readonly ChatMessage[], tools: readonly ChatTool[]): ChatMessage[] {
  const { abilities, syntax } = model;
  const written = plainMessages(given, syntax, abilities);
  const described = model.native || tools.length === 0 ? written : withDescribedTools(written, tools, syntax);
  return model.shortIds ? withShortIds(described) : described;
}

/** The tools in OpenAI's form, which templates expect. */
function toolsArgument(tools: readonly ChatTool[]): TemplateArgument {
  const functions = tools.map((tool) => `{"type":"function","function":${toolJson(tool)}}`);
  return { name: 'tools', value: `[${functions.join(',')}]` };
}

/** The required format of the whole answer; null: any text. */
function outputFormatOf(
  model: ChatModel,
  chat: ChatRequest,
  tools: readonly ChatTool[],
  prompt: { messages: readonly ChatMessage[]; templateArguments: readonly TemplateArgument[] },
): OutputFormat | null {
  const { style, syntax } = model;
  const { toolChoice, responseFormat } = chat;
  const named = typeof toolChoice === 'object' ? tools.filter(({ name }) => name === toolChoice.name) : tools;
  const forced = isForced(chat);
  if (!forced && responseFormat === null) return null;
  const calls = callForms(style, syntax, named);
  const forms = forced || responseFormat === null ? calls : [...jsonForms(style, schemaOf(responseFormat)), ...calls];
  return afterThinking(style, thinkingState(model, prompt.messages, prompt.templateArguments), forms);
}

/** Tells whether the answer must be a call. */
function isForced({ toolChoice }: ChatRequest): boolean {
  return typeof toolChoice === 'object' || toolChoice === 'required';
}

function thinkingState(
  { tokenizer, style }: Pick<ChatModel, 'tokenizer' | 'style'>,
  messages: readonly ChatMessage[],
  templateArguments: readonly TemplateArgument[],
): ThinkingState {
  if (style.reasoning === null) return 'none';
  const end = promptTail(tokenizer, messages, templateArguments).trimEnd();
  if (opensReasoning(style, end, null)) return 'open';
  return end.endsWith(style.reasoning.end) ? 'none' : 'free';
}

/** Renders the end of the prompt. If the conversation is long, only the last turn and a part of its text are rendered. */
function promptTail(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  templateArguments: readonly TemplateArgument[],
): string {
  const asked = messages.findLastIndex(({ role }) => role === 'user');
  const turn = messages.slice(Math.max(asked, 0)).slice(0, TAIL_MESSAGES);
  const short = turn.map((message) => ({ ...message, content: message.content.slice(0, TAIL_CHARACTERS) }));
  const values = templateValues(templateArguments);
  for (const tail of [short, [HELLO]]) {
    try {
      return tokenizer.renderChat(tail, { values, wallMs: 0 });
    } catch (thrown) {
      if (isTemplateFault(thrown)) break;
      // A template may refuse a part of a conversation. An error about the whole conversation is reported when the prompt is made.
    }
  }
  return '';
}

/** Mistral's templates only take ids of this form. */
const NINE = /^[A-Za-z0-9]{9}$/;

/**
 * Makes the ids of an answer's calls from the conversation and the answer's number. The same request gets the same ids; another turn or
 * another answer gets other ids.
 */
function callIdsFor(messages: readonly ChatMessage[], answer = 0): (index: number) => string {
  let base: string | null = null;
  return (index) => {
    base ??= digest(JSON.stringify(messages));
    return `call_${digest(`${base} ${answer} ${index}`).slice(0, 24)}`;
  };
}

/** Tells whether a template only takes ids of nine letters and digits. */
function wantsShortIds(source: string): boolean {
  return /length\s*!=\s*9\b/.test(source);
}

/** The messages with ids of nine letters and digits. The same id always gets the same short id. */
function withShortIds(messages: readonly ChatMessage[]): ChatMessage[] {
  const short = (id: string): string => (NINE.test(id) ? id : digest(id).slice(0, 9));
  return messages.map((message) => {
    const { toolCalls, toolCallId } = message;
    return {
      ...message,
      ...(toolCalls === undefined ? {} : { toolCalls: toolCalls.map((call) => ({ ...call, id: short(call.id) })) }),
      ...(toolCallId === undefined ? {} : { toolCallId: short(toolCallId) }),
    };
  });
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Variables of published templates that switch thinking on and off, the most common one first. */
const SWITCHES = ['enable_thinking', 'thinking'];
/** The variable of models that always think; it sets how long. */
const EFFORT = 'reasoning_effort';

/** Tells whether a client can switch thinking on or off. */
function canThink({ variables, reasoning, harmony }: ChatStyle): boolean {
  return harmony || reasoning !== null || SWITCHES.some((name) => variables.has(name));
}

/** The reason why the model cannot do as wished; null: it can, or nothing was wished. */
function thinkingFault(
  thinking: boolean | null,
  { style, alwaysThinks }: Pick<ChatModel, 'style' | 'alwaysThinks'>,
): string | null {
  if (thinking === null || [...SWITCHES, EFFORT].some((name) => style.variables.has(name))) return null;
  if (thinking) return canThink(style) ? null : 'thinking was asked for, but the model has none';
  return alwaysThinks ? 'no thinking was asked for, but the model always thinks before it answers' : null;
}

/** Template variables for the choice of thinking. Variables that the client set do not change. */
function thinkingArguments(
  thinking: boolean | null,
  style: ChatStyle,
  given: readonly TemplateArgument[],
): TemplateArgument[] {
  if (thinking === null) return [];
  const names = SWITCHES.filter((name) => style.variables.has(name));
  const isGiven = (name: string): boolean => given.some((argument) => argument.name === name);
  if (names.length > 0) {
    return names.filter((name) => !isGiven(name)).map((name) => ({ name, value: String(thinking) }));
  }
  if (!style.variables.has(EFFORT)) return [];
  return thinking || isGiven(EFFORT) ? [] : [{ name: EFFORT, value: '"low"' }];
}
