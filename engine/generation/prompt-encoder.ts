import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { templateValues } from '../../shared/wire/template-arguments.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

/** What of a request makes its prompt. */
export interface PromptRequest extends Pick<
  GenerateRequest,
  'text' | 'messages' | 'promptTokenIds' | 'raw' | 'templateArguments' | 'continueLast'
> {
  /** Of a raw text: no special tokens are added to it. */
  withoutSpecial?: boolean;
}

/** Makes token ids of prompts. */
export interface PromptEncoder {
  /**
   * Token ids of a validated request's prompt. Text goes through the chat template as a user's message unless the request is raw or
   * the model has no template. Rejects with REQUEST_INVALID, TOKENIZER_INVALID, CANCELLED, and what the implementation names.
   */
  encode(request: PromptRequest, signal: AbortSignal): Promise<number[]>;
  /** Idempotent. Encodings under way are rejected. */
  close(): Promise<void>;
}

/** Encodes where it is called: for processes that answer one request at a time. */
export class InlinePromptEncoder implements PromptEncoder {
  constructor(
    private readonly tokenizer: Tokenizer | null,
    private readonly runtime: Pick<Runtime, 'wallMs'>,
  ) {}

  async encode(request: PromptRequest): Promise<number[]> {
    return promptTokenIds(request, this.tokenizer, this.runtime.wallMs());
  }

  async close(): Promise<void> {
    // Nothing is held.
  }
}

/** As PromptEncoder.encode, at once. `wallMs`: the time that a chat template is told. */
export function promptTokenIds(request: PromptRequest, tokenizer: Tokenizer | null, wallMs: number): number[] {
  if (request.promptTokenIds.length > 0) return [...request.promptTokenIds];
  if (tokenizer === null) throw noTokenizer();
  const templateArguments = request.templateArguments ?? [];
  if (templateArguments.length > 0 && !tokenizer.hasChatTemplate) {
    throw new OdmoeError('REQUEST_INVALID', 'the model has no chat template that could take template arguments');
  }
  const context = { values: templateValues(templateArguments), wallMs, continueLast: request.continueLast ?? false };
  if (request.messages.length > 0) return tokenizer.encodeRendered(tokenizer.renderChat(request.messages, context));
  if (request.withoutSpecial === true) return tokenizer.encodeRendered(request.text);
  if (request.raw || !tokenizer.hasChatTemplate) return tokenizer.encode(request.text);
  return tokenizer.encodeRendered(tokenizer.renderChat([{ role: 'user', content: request.text }], context));
}

/**
 * Refuses by its bytes a prompt that cannot fit, before anybody spends time on its tokens. Throws PROMPT_TOO_LONG. What passes may
 * still have too many tokens.
 */
export function requireEncodable(
  { text, messages, raw }: PromptRequest,
  tokenizer: Pick<Tokenizer, 'longestTokenBytes'>,
  maxPositions: number,
): void {
  if (messages.length > maxPositions) {
    throw tooLong(`${messages.length} messages`, `the context holds ${maxPositions} tokens`);
  }
  const limitBytes = maxPositions * tokenizer.longestTokenBytes;
  // Chat templates often cut off the space around a message.
  const contents = raw ? [text] : [text.trim(), ...messages.map(({ content }) => content.trim())];
  const bytes = contents.reduce((sum, content) => sum + Buffer.byteLength(content), 0);
  if (bytes <= limitBytes) return;
  throw tooLong(`${bytes} bytes`, `the context holds ${maxPositions} tokens, which stand for ${limitBytes} at most`);
}

function tooLong(has: string, room: string): OdmoeError {
  return new OdmoeError('PROMPT_TOO_LONG', `the prompt has ${has}, but ${room}; shorten the prompt`);
}

function noTokenizer(): OdmoeError {
  return new OdmoeError(
    'TOKENIZER_INVALID',
    'the model has no tokenizer.json, so it takes no text; give the prompt as token ids (--prompt-token-ids 1,2,3)',
  );
}
