import type { ChatMessage } from '../../wire/messages.js';

/** What a chat template sees beside the messages. */
export interface ChatContext {
  /** Variables by name. */
  values: Readonly<Record<string, unknown>>;
  /** The time that it is told, milliseconds since 1970. */
  wallMs: number;
  /** The last message is an assistant's: the text ends where its content does, for the answer to go on there. */
  continueLast?: boolean;
}

/** Text to token ids and back, with the chat template that the model ships. */
export interface Tokenizer {
  /** Ids of a text, with the special tokens (usually a leading BOS) that tokenizer.json's post-processor adds. */
  encode(text: string): number[];
  /** Ids of a text that already holds its special tokens, as a rendered chat template does: none is added. */
  encodeRendered(text: string): number[];
  /** Text of the ids. Special tokens and ids without a token have none; spaces are left as the tokens have them. */
  decode(tokenIds: readonly number[]): string;
  /** The chat template applied to the messages, up to where the assistant's answer begins or goes on. */
  renderChat(messages: readonly ChatMessage[], context: ChatContext): string;
  /** Whether decode leaves the id out of the text. */
  isSpecial(tokenId: number): boolean;
  /**
   * Bytes that the token adds to a text (UTF-8, perhaps a part of a character): of a special token its name, of an id without a token none.
   * Where a decoder drops the space before a text's first word, the token has it.
   */
  tokenBytes(tokenId: number): Uint8Array;
  readonly hasChatTemplate: boolean;
  /** Text of the chat template; null: there is none. */
  readonly chatTemplateSource: string | null;
  /** One more than the highest id. */
  readonly vocabularySize: number;
  /** Bytes (UTF-8) of text that one token stands for at most; Infinity: there is no bound. */
  readonly longestTokenBytes: number;
}
