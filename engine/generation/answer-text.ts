import { StreamingDetokenizer } from '../../shared/tokenizer/streaming-detokenizer.js';
import type { Tokenizer } from '../../shared/tokenizer/tokenizer.js';
import { StopStrings } from './stop-strings.js';

/** The text of an answer as its tokens come: detokenized, and cut before a stop string. Empty without a tokenizer. */
export class AnswerText {
  private readonly detokenizer: StreamingDetokenizer | null;
  private readonly stops: StopStrings;
  private shown = '';

  constructor(tokenizer: Tokenizer | null, stop: readonly string[]) {
    this.detokenizer = tokenizer === null ? null : new StreamingDetokenizer(tokenizer);
    this.stops = new StopStrings(stop);
  }

  /** All text shown so far. */
  get text(): string {
    return this.shown;
  }

  /** Text that is certain after this token, and whether a stop string ended the answer. */
  push(tokenId: number): { text: string; stopped: boolean } {
    return this.show(this.stops.push(this.detokenizer?.push(tokenId) ?? ''));
  }

  /** The rest, when no token follows. */
  finish(): { text: string; stopped: boolean } {
    const last = this.stops.push(this.detokenizer?.flush() ?? '');
    return this.show(last.stopped ? last : { text: last.text + this.stops.flush(), stopped: false });
  }

  private show(step: { text: string; stopped: boolean }): { text: string; stopped: boolean } {
    this.shown += step.text;
    return step;
  }
}
