import { isJson } from '../../shared/base/json/is-json.js';
import { AnswerInput, type Reading } from './answer-input.js';
import { CallBook } from './call-book.js';
import type { AnswerParser, AnswerDelta, ChatTool } from './chat-request.js';
import { hasSpecialMarkers, type ChatStyle } from './detect-style.js';
import { readAnswer } from './read-answer.js';
import { readHarmony } from './read-harmony.js';

export interface AnswerParserOptions {
  /** `calls` null: no text counts as a call. */
  style: ChatStyle;
  /** The offered functions. */
  tools: readonly ChatTool[];
  /** True: calls after the first are dropped. */
  singleCall: boolean;
  /** True: the answer must be calls; none of its text is content. */
  forced: boolean;
  /** The last tokens of the prompt, with special tokens' names. */
  promptEnd: string;
  /** The message that the answer continues; null: it begins one. */
  continued: string | null;
  /** Makes the id of the call with this number. */
  idOf: (index: number) => string;
}

/** Makes the parser of an answer of this style. */
export function createAnswerParser(options: AnswerParserOptions): AnswerParser {
  const { style, tools, promptEnd, idOf } = options;
  const input = new AnswerInput();
  const book = new CallBook(tools, idOf);
  const calls = tools.length === 0 ? null : style.calls;
  const hidden = hasSpecialMarkers({ ...style, calls }) ? [...style.specialNames] : [];
  if (!style.harmony) {
    const thinking = opensReasoning(style, promptEnd, options.continued);
    const reading = readAnswer({ calls, reasoning: style.reasoning, hidden }, input, book, thinking);
    return new ReadingParser(input, reading, options);
  }
  const parser = new ReadingParser(input, readHarmony(input, book, tools.length > 0, hidden), options);
  // The prompt may end inside a message: its part of the answer's own message sets the channel.
  const begun = promptEnd.lastIndexOf('<|start|>assistant');
  if (begun >= 0) parser.push(promptEnd.slice(begun + '<|start|>'.length));
  return parser;
}

/** Tells whether the answer begins inside reasoning: the prompt, or the message that it continues, has opened it. */
export function opensReasoning(
  { reasoning }: Pick<ChatStyle, 'reasoning'>,
  promptEnd: string,
  continued: string | null,
): boolean {
  if (reasoning === null) return false;
  const begin = reasoning.begin.trim();
  if (continued === null) return promptEnd.trimEnd().endsWith(begin);
  return continued.lastIndexOf(begin) > continued.lastIndexOf(reasoning.end);
}

/** Gives incoming text to a reader. */
class ReadingParser implements AnswerParser {
  /** Arguments of the last call; null: there is no call. */
  private arguments: string | null = null;

  constructor(
    private readonly input: AnswerInput,
    private readonly reading: Reading<void>,
    private readonly options: Pick<AnswerParserOptions, 'singleCall' | 'forced'>,
  ) {}

  get lastCallWhole(): boolean {
    return this.arguments !== null && isJson(this.arguments);
  }

  push(text: string): AnswerDelta[] {
    this.input.append(text);
    return this.deltas();
  }

  finish(): AnswerDelta[] {
    this.input.end();
    return this.deltas();
  }

  /** Joins adjacent answer deltas of one kind. */
  private deltas(): AnswerDelta[] {
    const deltas: AnswerDelta[] = [];
    for (let step = this.reading.next(); step.done !== true && step.value !== null; step = this.reading.next()) {
      const delta = step.value;
      if (this.isLeftOut(delta)) continue;
      this.count(delta);
      const last = deltas.at(-1);
      if (last === undefined || !joined(last, delta)) deltas.push({ ...delta });
    }
    return deltas;
  }

  private isLeftOut(delta: AnswerDelta): boolean {
    if (delta.kind === 'content') return this.options.forced;
    return this.options.singleCall && 'index' in delta && delta.index > 0;
  }

  private count(delta: AnswerDelta): void {
    if (delta.kind === 'toolCall') this.arguments = '';
    else if (delta.kind === 'toolArguments') this.arguments += delta.text;
  }
}

/** Adds a delta's text to the delta before it, if they belong together. */
function joined(last: AnswerDelta, delta: AnswerDelta): boolean {
  if (last.kind === 'toolCall' || delta.kind === 'toolCall' || last.kind !== delta.kind) return false;
  if ('index' in last && 'index' in delta && last.index !== delta.index) return false;
  last.text += delta.text;
  return true;
}
