import type { ChatMessage } from '../../wire/messages.js';

/** The input of a chat template in addition to the messages. */
export interface ChatContext {
  /** Variables by name. */
  values: Readonly<Record<string, unknown>>;
  /** The time that the template sees, in milliseconds since 1970. */
  wallMs: number;
  /** True: the last message is an assistant's. The text ends where the content of that message does, and the answer goes on there. */
  continueLast?: boolean;
}

/** Converts text to token ids and back, with the chat template that the model ships. */
export interface Tokenizer {
  /** Ids of a text, with the special tokens (usually a leading BOS) that tokenizer.json's post-processor adds. */
  encode(text: string): number[];
  /** Ids of a text that already contains its special tokens, as a rendered chat template does: no special tokens are added. */
  encodeRendered(text: string): number[];
  /** Text of the ids. Special tokens and ids without a token add nothing; spaces stay as the tokens have them. */
  decode(tokenIds: readonly number[]): string;
  /**
   * Ids of the chat template applied to the messages. The names of special tokens in the texts of users and tools are encoded as texts. Throws as
   * renderChat does.
   */
  encodeChat(messages: readonly ChatMessage[], context: ChatContext): number[];
  /** The chat template applied to the messages, up to the place where the assistant's answer begins or goes on. */
  renderChat(messages: readonly ChatMessage[], context: ChatContext): string;
  /** True if decode leaves the id out of the text. */
  isSpecial(tokenId: number): boolean;
  /**
   * Bytes (UTF-8, perhaps a part of a character) that the token adds to a text: for a special token its name, for an id without a token none. If
   * a decoder drops the space before a text's first word, the token still has it.
   */
  tokenBytes(tokenId: number): Uint8Array;
  readonly hasChatTemplate: boolean;
  /** Text of the chat template; null: there is none. */
  readonly chatTemplateSource: string | null;
  /** One more than the highest id. */
  readonly vocabularySize: number;
  /** Most bytes (UTF-8) of text for which one token stands; Infinity: no bound. */
  readonly longestTokenBytes: number;
}
