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

/** What a model's template offers to clients. */
export interface ChatAbilities {
  /** native: the template takes tools. fallback: they are described in a message. */
  tools: 'native' | 'fallback';
  /** The model can think before it answers. */
  thinking: boolean;
}

/** Messages and characters of each that are rendered to see how a prompt ends. */
const TAIL_MESSAGES = 8;
const TAIL_CHARACTERS = 64;
const HELLO: ChatMessage = { role: 'user', content: 'Hello' };

/** What is known of the served model. */
interface ChatModel {
  tokenizer: Tokenizer;
  style: ChatStyle;
  abilities: TemplateAbilities;
  /** The template takes tools, and its answers' calls can be read. */
  native: boolean;
  /** How calls are written: the model's own way, or the one that it is told. */
  syntax: CallSyntax;
  shortIds: boolean;
  /** Its prompts open the reasoning, unless a variable says otherwise. */
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
  const { native, style } = chatModelOf(tokenizer);
  return { tools: native ? 'native' : 'fallback', thinking: canThink(style) };
}

const models = new WeakMap<Tokenizer, ChatModel>();

/** Found out once for each tokenizer. */
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
  const templateArguments = [
    ...chat.templateArguments,
    ...thinkingArguments(chat.thinking, model.style, chat.templateArguments, model.alwaysThinks),
    ...(model.native && tools.length > 0 ? [toolsArgument(tools)] : []),
  ];
  const { continueLast } = chat;
  const style = { ...model.style, calls: tools.length > 0 ? model.syntax : null };
  const continued = continueLast ? (messages.at(-1)?.content ?? '') : null;
  return {
    request: { messages, templateArguments, continueLast, showSpecialTokens: hasSpecialMarkers(style) },
    outputFormat: outputFormatOf(model, chat, tools, { messages, templateArguments }),
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

/** As OpenAI has them, which is what templates take. */
function toolsArgument(tools: readonly ChatTool[]): TemplateArgument {
  const functions = tools.map((tool) => `{"type":"function","function":${toolJson(tool)}}`);
  return { name: 'tools', value: `[${functions.join(',')}]` };
}

/** What the whole answer must be; null: anything. */
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

/** Whether the answer must be a call. */
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

/** How the prompt ends; of a long conversation only the last turn is rendered, and of that not all text. */
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
      // A template may refuse a part of a conversation; what it says of the whole one is told where the prompt is made.
    }
  }
  return '';
}

/** Mistral's templates take ids of this form only. */
const NINE = /^[A-Za-z0-9]{9}$/;

/**
 * Ids of an answer's calls. They follow from the conversation and the answer's number: the same request has the same ids, another turn and
 * another answer have others.
 */
function callIdsFor(messages: readonly ChatMessage[], answer = 0): (index: number) => string {
  let base: string | null = null;
  return (index) => {
    base ??= digest(JSON.stringify(messages));
    return `call_${digest(`${base} ${answer} ${index}`).slice(0, 24)}`;
  };
}

/** Whether a template takes ids of nine letters and digits only. */
function wantsShortIds(source: string): boolean {
  return /length\s*!=\s*9\b/.test(source);
}

/** The messages with ids of nine letters and digits, each id always the same one. */
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

/** Variables by which published templates let one choose, the more usual one first. */
const SWITCHES = ['enable_thinking', 'thinking'];
/** Of models that always think, but not always for long. */
const EFFORT = 'reasoning_effort';

/** Whether a client can say that the model is to think. */
function canThink({ variables, reasoning, harmony }: ChatStyle): boolean {
  return harmony || reasoning !== null || SWITCHES.some((name) => variables.has(name));
}

/**
 * Template variables for a choice. What the client itself has set stays. `alwaysThinks`: the template opens the reasoning, and has no
 * variable for it. @throws REQUEST_INVALID where the template cannot do it
 */
function thinkingArguments(
  thinking: boolean | null,
  style: ChatStyle,
  given: readonly TemplateArgument[],
  alwaysThinks: boolean,
): TemplateArgument[] {
  if (thinking === null) return [];
  const names = SWITCHES.filter((name) => style.variables.has(name));
  const isGiven = (name: string): boolean => given.some((argument) => argument.name === name);
  if (names.length > 0) {
    return names.filter((name) => !isGiven(name)).map((name) => ({ name, value: String(thinking) }));
  }
  if (style.variables.has(EFFORT)) {
    return thinking || isGiven(EFFORT) ? [] : [{ name: EFFORT, value: '"low"' }];
  }
  if (thinking && !canThink(style)) {
    throw new OdmoeError('REQUEST_INVALID', 'thinking was asked for, but the model has none; leave it out', {
      field: 'thinking',
    });
  }
  if (!thinking && alwaysThinks) {
    throw new OdmoeError('REQUEST_INVALID', 'the model always thinks before it answers; leave it out to let it', {
      field: 'thinking',
    });
  }
  return [];
}
