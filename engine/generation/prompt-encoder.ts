import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { templateValues } from '../../shared/wire/template-arguments.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

/** The fields of a request that make its prompt. */
export interface PromptRequest extends Pick<
  GenerateRequest,
  'text' | 'messages' | 'promptTokenIds' | 'raw' | 'templateArguments' | 'continueLast'
> {
  /** For a raw text: adds no special tokens to it. */
  withoutSpecial?: boolean;
}

/** Makes token ids of prompts. */
export interface PromptEncoder {
  /**
   * Token ids of a validated request's prompt. Text goes through the chat template as a user's message, unless the request is raw or the model
   * has no template. Rejects with REQUEST_INVALID, TOKENIZER_INVALID, CANCELLED, and the errors of the implementation.
   */
  encode(request: PromptRequest, signal: AbortSignal): Promise<number[]>;
  /** Rejects encodings under way. Idempotent. */
  close(): Promise<void>;
}

/** Encodes on the caller's thread: for processes that answer one request at a time. */
export class InlinePromptEncoder implements PromptEncoder {
  constructor(
    private readonly tokenizer: Tokenizer | null,
    private readonly runtime: Pick<Runtime, 'wallMs'>,
  ) {}

  async encode(request: PromptRequest): Promise<number[]> {
    return promptTokenIds(request, this.tokenizer, this.runtime.wallMs());
  }

  async close(): Promise<void> {
    // There is nothing to release.
  }
}

/** Like PromptEncoder.encode, but synchronous. `wallMs`: the time that a chat template gets. */
export function promptTokenIds(request: PromptRequest, tokenizer: Tokenizer | null, wallMs: number): number[] {
  if (request.promptTokenIds.length > 0) return [...request.promptTokenIds];
  if (tokenizer === null) throw noTokenizer();
  const templateArguments = request.templateArguments ?? [];
  if (templateArguments.length > 0 && !tokenizer.hasChatTemplate) {
    throw new OdmoeError('REQUEST_INVALID', 'the model has no chat template that could take template arguments');
  }
  const context = { values: templateValues(templateArguments), wallMs, continueLast: request.continueLast ?? false };
  if (request.messages.length > 0) return tokenizer.encodeChat(request.messages, context);
  if (request.withoutSpecial === true) return tokenizer.encodeRendered(request.text);
  if (request.raw || !tokenizer.hasChatTemplate) return tokenizer.encode(request.text);
  return tokenizer.encodeChat([{ role: 'user', content: request.text }], context);
}

/** Most tokens of prompt and answer together. */
export interface ContextLimit {
  maxPositions: number;
  /** How an operator raises it, after "or"; missing: nobody can. */
  toRaise?: string;
}

/**
 * Refuses a prompt that cannot fit, judged by its bytes, before it is tokenized. Throws PROMPT_TOO_LONG. A prompt that passes may still have
 * too many tokens.
 */
export function requireEncodable(
  { text, messages, raw }: PromptRequest,
  tokenizer: Pick<Tokenizer, 'longestTokenBytes'>,
  { maxPositions, toRaise }: ContextLimit,
): void {
  if (messages.length > maxPositions) {
    throw tooLong(`${messages.length} messages`, `the context holds ${maxPositions} tokens`, toRaise);
  }
  const limitBytes = maxPositions * tokenizer.longestTokenBytes;
  // Chat templates often cut off the white space around a message.
  const contents = raw ? [text] : [text.trim(), ...messages.map(({ content }) => content.trim())];
  const bytes = contents.reduce((sum, content) => sum + Buffer.byteLength(content), 0);
  if (bytes <= limitBytes) return;
  const room = `the context holds ${maxPositions} tokens, which stand for ${limitBytes} at most`;
  throw tooLong(`${bytes} bytes`, room, toRaise);
}

/** The refusal of a prompt that the context does not hold. `has` and `room`: its size, and that of the context, in words. */
export function tooLong(has: string, room: string, toRaise = ''): OdmoeError {
  const remedy = toRaise === '' ? 'shorten the prompt' : `shorten the prompt, or ${toRaise}`;
  return new OdmoeError('PROMPT_TOO_LONG', `the prompt has ${has}, but ${room}; ${remedy}`);
}

function noTokenizer(): OdmoeError {
  return new OdmoeError(
    'TOKENIZER_INVALID',
    'the model has no tokenizer.json, so it takes no text; give the prompt as token ids (--prompt-token-ids 1,2,3)',
  );
}
