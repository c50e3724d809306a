import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { MAX_TOKENS_RANGE } from '../../shared/wire/generate-validation.js';
import type { GenerateReply, GenerateRequest, TemplateArgument, TokenReply } from '../../shared/wire/messages.js';
import type { Interruptible } from '../client/interrupt.js';
import { collectGeneration, type GenerationResult, generationSummary } from '../output/generation-output.js';
import { CHAT_HELP, parseChatLine, type ChatLine } from './chat-line.js';
import { changeSetting, settingLines, type TerminalChatSettings } from './chat-settings.js';
import { conversationPath, readConversation, writeConversation } from './conversation-file.js';
import { allMessages, answered, asked, cleared, reopened, undone, type TerminalConversation } from './conversation.js';
import type { LineInput, TypedInput } from './line-input.js';
import { MessageLines, type CollectedText } from './message-lines.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';

const PROMPT = '> ';
const MORE_PROMPT = '... ';

export interface ChatOptions {
  lines: LineInput;
  /** Sends the request to the cluster, or to the engine of this process. */
  generate(request: GenerateRequest, signal: AbortSignal): AsyncIterable<GenerateReply>;
  /** Runs an answer that Ctrl-C can stop. */
  interruptible: Interruptible;
  /** Prints an answer's text as it comes. */
  answer(text: string): void;
  /** Prints other lines for people, besides the answers. */
  note(text: string): void;
  /** Stores the lines that the user typed. */
  typed(lines: readonly string[]): Promise<void>;
  /** True: a person types, so that errors are printed and the conversation continues. False: the first error ends it. */
  isInteractive: boolean;
  templateArguments: TemplateArgument[];
}

/** A conversation, line by line. */
export class ChatSession {
  private readonly collecting = new MessageLines();
  /** Typed lines of the message that is not yet complete. */
  private typedLines: string[] = [];
  /** The last file of /save or /load; null: none so far. */
  private path: string | null = null;
  private isOver = false;

  constructor(
    private conversation: TerminalConversation,
    private settings: TerminalChatSettings,
    private readonly options: ChatOptions,
  ) {}

  /** Resolves when the user has ended the conversation. Throws an error that ends it otherwise. */
  async run(): Promise<void> {
    while (!this.isOver) {
      try {
        const text = await this.nextText();
        if (text === null) return;
        await this.handle(text);
      } catch (thrown) {
        if (this.isOver || !this.options.isInteractive) throw thrown;
        this.typedLines = [];
        const error = toOdmoeError(thrown);
        const advice = turnAdvice(error.code);
        this.options.note(`${error.message} [${error.code}]${advice === null ? '' : `\n${advice}`}`);
      }
    }
  }

  /** null: the input has ended. */
  private async nextText(): Promise<CollectedText | null> {
    for (;;) {
      const input = await this.options.lines.next(this.collecting.isOpen ? MORE_PROMPT : PROMPT);
      const text = this.collect(input);
      if (text === null && input.kind !== 'end') continue;
      const typed = this.typedLines.splice(0);
      if (typed.length > 0) await this.options.typed(typed);
      return text;
    }
  }

  private collect(input: TypedInput): CollectedText | null {
    switch (input.kind) {
      case 'line':
        this.typedLines.push(input.text);
        return this.collecting.add(input.text);
      case 'paste':
        this.typedLines.push(...input.text.split('\n'));
        return this.collecting.addPaste(input.text);
      case 'interrupt':
        if (!input.hadText && !this.collecting.isOpen) this.options.note('to end: /exit or Ctrl-D');
        this.collecting.reset();
        this.typedLines = [];
        return null;
      case 'end':
        return this.collecting.end();
    }
  }

  private async handle({ text, isVerbatim }: CollectedText): Promise<void> {
    const line: ChatLine = isVerbatim ? { kind: 'message', text } : parseChatLine(text);
    switch (line.kind) {
      case 'message':
        return line.text === '' ? undefined : this.askNew(line.text);
      case 'set':
        return this.set(line.key, line.value);
      case 'system':
        return this.system(line.text);
      case 'save':
        return this.save(line.path);
      case 'load':
        return this.load(line.path);
      case 'clear':
        this.conversation = cleared(this.conversation);
        // /save without a name must not overwrite the earlier conversation's file.
        this.path = null;
        return this.options.note('a new conversation');
      case 'undo':
        return this.undo();
      case 'retry':
        return this.retry();
      case 'help':
        return this.options.note(CHAT_HELP);
      case 'exit':
        this.isOver = true;
    }
  }

  private async askNew(text: string): Promise<void> {
    const next = asked(this.conversation, text);
    await this.ask(next, next);
  }

  private async retry(): Promise<void> {
    const next = reopened(this.conversation);
    if (next === null) throw new OdmoeError('USAGE', 'nothing has been asked yet');
    await this.ask(next, this.conversation);
  }

  /** Sends the unanswered message. `otherwise`: the conversation if no text of an answer comes. */
  private async ask(next: TerminalConversation, otherwise: TerminalConversation): Promise<void> {
    this.conversation = otherwise;
    const came = new CameSoFar((text) => this.options.answer(text));
    await this.options.interruptible(async (signal, interruption) => {
      try {
        const replies = this.options.generate(this.request(next), signal);
        const result = await collectGeneration(replies, came.add).finally(came.endLine);
        this.keep(next, came.text);
        if (this.options.isInteractive) this.options.note(turnSummary(result, this.settings.maxTokens));
      } catch (thrown) {
        this.isOver = interruption.by === 'SIGTERM';
        if (interruption.by !== 'SIGINT' || !this.options.isInteractive) throw thrown;
        this.keep(next, came.text);
        this.options.note(stoppedSummary(came.tokens, came.text !== ''));
      }
    });
  }

  private keep(next: TerminalConversation, text: string): void {
    if (text !== '') this.conversation = answered(next, text);
  }

  private request(conversation: TerminalConversation): GenerateRequest {
    const { sampling, maxTokens } = this.settings;
    return {
      text: '',
      raw: false,
      promptTokenIds: [],
      messages: allMessages(conversation),
      // Tokens beyond the context's end are cut off.
      maxTokens: maxTokens ?? MAX_TOKENS_RANGE.most,
      sampling,
      stop: [],
      ignoreEos: false,
      logprobs: 0,
      templateArguments: this.options.templateArguments,
    };
  }

  private set(key: string | null, value: string): void {
    if (key !== null) this.settings = changeSetting(this.settings, key, value);
    const lines = settingLines(this.settings).filter((line) => key === null || line.startsWith(`${key} `));
    this.options.note(lines.join('\n'));
  }

  /** "-": removes the system text. null: shows it. */
  system(text: string | null): void {
    if (text !== null) this.conversation = { ...this.conversation, system: text === '-' ? null : text };
    const { system } = this.conversation;
    this.options.note(system === null ? 'the model is told nothing beforehand' : `the model is told: ${system}`);
  }

  private undo(): void {
    const shorter = undone(this.conversation);
    if (shorter === null) throw new OdmoeError('USAGE', 'there is no turn to drop');
    this.conversation = shorter;
    this.options.note(`dropped; ${turnsOf(shorter)} left`);
  }

  private async save(given: string | null): Promise<void> {
    const path = given === null ? this.path : conversationPath(given);
    if (path === null) throw new OdmoeError('USAGE', '/save has no file: write /save FILE');
    await writeConversation(path, this.conversation, path === this.path);
    this.path = path;
    this.options.note(`saved ${turnsOf(this.conversation)} to ${path}`);
  }

  /** If the file cannot be read, the present conversation stays. */
  async load(given: string): Promise<void> {
    const path = conversationPath(given);
    this.conversation = await readConversation(path);
    this.path = path;
    const { unanswered } = this.conversation;
    const more = unanswered === null ? '' : '; its last message has no answer: /retry asks it';
    this.options.note(`loaded ${turnsOf(this.conversation)} from ${path}${more}`);
  }
}

/** The part of an answer that has come so far. */
class CameSoFar {
  text = '';
  tokens = 0;

  constructor(private readonly show: (text: string) => void) {}

  readonly add = (token: TokenReply): void => {
    this.text += token.text;
    this.tokens += 1;
    this.show(token.text);
  };

  readonly endLine = (): void => {
    if (this.text !== '' && !this.text.endsWith('\n')) this.show('\n');
  };
}

/** For example "1 turn" or "3 turns". */
function turnsOf({ messages }: TerminalConversation): string {
  const turns = messages.filter(({ role }) => role === 'user').length;
  return `${turns} ${turns === 1 ? 'turn' : 'turns'}`;
}

/** Errors after which the same message may succeed. */
const PASSING: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  ...(['NO_MAIN', 'NO_WORKERS', 'WORKER_LOST', 'SHADOW_LOST', 'QUEUE_FULL', 'TIMEOUT'] as const),
  ...(['DEVICE_LOST', 'DEVICE_OUT_OF_MEMORY', 'PACK_INCOMPLETE'] as const),
]);

const MAKE_ROOM =
  '/undo drops the last turn, /clear begins a new conversation, /save FILE keeps this one; then /retry asks again';

/** Advice after a turn that failed; null: the error itself has the advice. */
function turnAdvice(code: ErrorCode): string | null {
  if (code === 'PROMPT_TOO_LONG') return `The conversation has become too long for the model. ${MAKE_ROOM}.`;
  return PASSING.has(code) ? '/retry asks again.' : null;
}

/** The line under an answer. `maxTokens` null: the answer could fill the context. */
export function turnSummary(result: GenerationResult, maxTokens: number | null): string {
  const { tokens, finished } = result;
  const isFull = finished.finishReason === 'length' && (maxTokens === null || tokens.length < maxTokens);
  const full = isFull ? `; the context is full: ${MAKE_ROOM}` : '';
  const empty = finished.text === '' ? '; the answer has no text, and is not kept (/retry asks again)' : '';
  return `${generationSummary(result)}${full}${empty}`;
}

/** The line under an answer that was stopped. */
function stoppedSummary(tokens: number, hasText: boolean): string {
  const what = hasText
    ? 'what came stays in the conversation (/undo drops it, /retry asks again)'
    : 'nothing had come (/retry asks again)';
  return `stopped after ${tokens} ${tokens === 1 ? 'token' : 'tokens'}; ${what}`;
}
