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

/** What the answer's text must be. `schema`: a JSON schema as text. */
export type ResponseFormat = { kind: 'json_object' } | { kind: 'json_schema'; schema: string };

/** The schema (a JSON text) that an answer in this format follows. */
export function schemaOf(format: ResponseFormat): string {
  return format.kind === 'json_object' ? ANY_OBJECT : format.schema;
}

/** A conversation to be continued, in no client's dialect. */
export interface ChatRequest {
  messages: ChatMessage[];
  tools: ChatTool[];
  toolChoice: ToolChoice;
  /** Several calls in one answer may be made. */
  parallelToolCalls: boolean;
  /** null: any text. */
  responseFormat: ResponseFormat | null;
  /** The last message is an assistant's that the answer goes on with. */
  continueLast: boolean;
  /** Variables of the chat template that the client gave (chat_template_kwargs). */
  templateArguments: TemplateArgument[];
  /** Whether the model is to think before it answers, where its template lets one say so; null: as the template has it. */
  thinking: boolean | null;
}

/** What of a GenerateRequest follows from a conversation. */
export interface PreparedChat {
  request: Pick<GenerateRequest, 'messages' | 'templateArguments' | 'continueLast' | 'showSpecialTokens'>;
  outputFormat: OutputFormat | null;
  /**
   * Takes an answer's text apart. `promptEnd`: the last tokens of the prompt as text, with special tokens' names. `answer`: its number among
   * the answers to the prompt; 0 if it is left out.
   */
  createParser(promptEnd: string, answer?: number): AnswerParser;
}

/** A piece of an answer. Pieces of one kind that follow one another belong together; calls are numbered from 0. */
export type AnswerDelta =
  | { kind: 'content'; text: string }
  | { kind: 'reasoning'; text: string }
  | { kind: 'toolCall'; index: number; id: string; name: string }
  /** More of that call's arguments, which are JSON when they are whole. */
  | { kind: 'toolArguments'; index: number; text: string };

/** Finds reasoning and calls of tools in an answer's text as it comes. What may be the begin of a marker is held back. */
export interface AnswerParser {
  push(text: string): AnswerDelta[];
  /** What was held back, when the answer has ended. */
  finish(): AnswerDelta[];
  /** There is a call, and the arguments of the last one are whole. */
  readonly lastCallWhole: boolean;
}

/** Prepares a conversation for the served model. Throws REQUEST_INVALID with the field. */
export type PrepareChat = (chat: ChatRequest) => PreparedChat;
