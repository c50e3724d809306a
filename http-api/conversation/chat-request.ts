import type { ChatMessage, GenerateRequest, OutputFormat, TemplateArgument } from '../../shared/wire/messages.js';
import { ANY_OBJECT } from '../../shared/language/response-format.js';

/** A function that the model may call. `parameters`: a JSON schema. */
export interface ChatTool {
  name: string;
  description: string;
  parameters: Record<string, unknown>;
}

/** auto: the model decides; required: it must call one; a name: it must call that one. */
export type ToolChoice = 'auto' | 'none' | 'required' | { name: string };

/** The form that the answer's text must have. `schema`: a JSON schema as text. */
export type ResponseFormat = { kind: 'json_object' } | { kind: 'json_schema'; schema: string };

/** The schema (a JSON text) of an answer in this format. */
export function schemaOf(format: ResponseFormat): string {
  return format.kind === 'json_object' ? ANY_OBJECT : format.schema;
}

/** A conversation that the model continues, independent of any client's dialect. */
export interface ChatRequest {
  messages: ChatMessage[];
  tools: ChatTool[];
  toolChoice: ToolChoice;
  /** True: one answer may make several calls. */
  parallelToolCalls: boolean;
  /** null: any text. */
  responseFormat: ResponseFormat | null;
  /** True: the last message is an assistant's, and the answer continues it. */
  continueLast: boolean;
  /** Variables of the chat template that the client set (chat_template_kwargs). */
  templateArguments: TemplateArgument[];
  /** Tells whether the model must think before it answers, if its template has a variable for that; null: the template's default. */
  thinking: boolean | null;
  /** True: a model that cannot do as `thinking` says answers nevertheless, and `warnings` say so. Default: the request is refused. */
  isThinkingHint?: boolean;
}

/** Parts of a GenerateRequest that follow from a conversation. */
export interface PreparedChat {
  request: Pick<GenerateRequest, 'messages' | 'templateArguments' | 'continueLast' | 'showSpecialTokens'>;
  outputFormat: OutputFormat | null;
  /** Wishes of the request that are not kept. */
  warnings: readonly string[];
  /**
   * Makes the parser of an answer. `promptEnd`: the last tokens of the prompt as text, with special tokens' names. `answer`: its number among
   * the answers to the prompt; default 0.
   */
  createParser(promptEnd: string, answer?: number): AnswerParser;
}

/** A part of an answer. Adjacent parts of one kind belong together. Calls are numbered from 0. */
export type AnswerDelta =
  | { kind: 'content'; text: string }
  | { kind: 'reasoning'; text: string }
  | { kind: 'toolCall'; index: number; id: string; name: string }
  /** More of that call's arguments; all of them together are JSON. */
  | { kind: 'toolArguments'; index: number; text: string };

/** Finds reasoning and calls of tools in the incoming text of an answer. Text that may begin a marker is held back. */
export interface AnswerParser {
  push(text: string): AnswerDelta[];
  /** Returns the text that was held back, when the answer has ended. */
  finish(): AnswerDelta[];
  /** True: there is a call, and the arguments of the last one are complete. */
  readonly lastCallWhole: boolean;
}

/** Prepares a conversation for the served model. Throws REQUEST_INVALID with the field. */
export type PrepareChat = (chat: ChatRequest) => PreparedChat;
