import type { ChatMessage, OutputFormat, TemplateArgument } from '../../shared/wire/messages.js';
import { templateValues } from '../../shared/wire/template-arguments.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { createAnswerParser, opensReasoning } from './answer-parser.js';
import { callIdsFor, wantsShortIds, withShortIds } from './call-ids.js';
import { HERMES, type CallSyntax } from './call-syntax.js';
import { type ChatRequest, type ChatTool, type PrepareChat, schemaOf } from './chat-request.js';
import { checkChat } from './check-chat.js';
import { detectStyle, hasSpecialMarkers, type ChatStyle } from './detect-style.js';
import { afterThinking, callForms, jsonForms, type ThinkingState } from './forced-format.js';
import { plainMessages, toolJson, withDescribedTools } from './plain-messages.js';
import { isTemplateFault, templateAbilities, type TemplateAbilities } from './template-abilities.js';
import { canThink, thinkingArguments } from './thinking-choice.js';

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
