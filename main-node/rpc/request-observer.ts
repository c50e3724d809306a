import { GenerationTiming } from '../../engine/generation/generation-timing.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { SepMetrics, Timing } from '../../shared/wire/messages.js';
import type { AnswerCost } from '../decode/cluster-sequence.js';

/** How a request ended. */
export interface RequestEnd {
  code: 'ok' | ErrorCode;
  /** From its arrival to its end, whichever that was. */
  durationMs: number;
  /** Of the answer, as far as it came. */
  tokens: number;
  timing: Timing;
  /** Null: it did not come to an answer. */
  cost: AnswerCost | null;
}

/** An answer in the making, which knows what it has cost so far. */
export interface AnswerCosts {
  cost(): AnswerCost;
  /** Null: nobody has predicted. */
  sepMetrics(): SepMetrics | null;
}

/** Is told of every request that comes to main. Nothing may be thrown. */
export interface RequestObserver {
  /** It runs from now on. */
  admitted(promptTokens: number, queuedMs: number): void;
  firstToken(ttftMs: number): void;
  /** Each token of the answer. */
  token(): void;
  /** The answer is being made from now on, and can be asked what it costs. */
  answering?(source: AnswerCosts): void;
  /** It is freed: its cost is the last one. */
  answered?(source: AnswerCosts): void;
  ended(end: RequestEnd): void;
}

/** One observer for several. */
export function observeAll(observers: readonly RequestObserver[]): RequestObserver {
  const each = (tell: (observer: RequestObserver) => void): void => {
    for (const observer of observers) tell(observer);
  };
  return {
    admitted: (promptTokens, queuedMs) => each((observer) => observer.admitted(promptTokens, queuedMs)),
    firstToken: (ttftMs) => each((observer) => observer.firstToken(ttftMs)),
    token: () => each((observer) => observer.token()),
    answering: (source) => each((observer) => observer.answering?.(source)),
    answered: (source) => each((observer) => observer.answered?.(source)),
    ended: (end) => each((observer) => observer.ended(end)),
  };
}

/** One request as its observer hears of it. */
export class ObservedRequest {
  readonly timing: GenerationTiming;
  /** A request that is left before its end was cancelled. */
  private code: RequestEnd['code'] = 'CANCELLED';
  private tokens = 0;
  private cost: AnswerCost | null = null;
  private readonly arrivedMs: number;

  constructor(
    private readonly observer: RequestObserver,
    private readonly nowMs: () => number,
  ) {
    this.arrivedMs = nowMs();
    this.timing = new GenerationTiming(nowMs, this.arrivedMs);
  }

  admitted(promptTokens: number): void {
    this.timing.start();
    this.observer.admitted(promptTokens, this.timing.result().queuedMs);
  }

  token(): void {
    this.timing.token();
    this.tokens += 1;
    if (this.tokens === 1) this.observer.firstToken(this.timing.result().ttftMs);
    this.observer.token();
  }

  answering(source: AnswerCosts): void {
    this.observer.answering?.(source);
  }

  /** The sequence is freed. */
  answered(source: AnswerCosts): void {
    this.cost = source.cost();
    this.observer.answered?.(source);
  }

  succeeded(): void {
    this.code = 'ok';
  }

  failed(code: ErrorCode): void {
    this.code = code;
  }

  ended(): void {
    const { code, tokens, timing, cost } = this;
    const durationMs = this.nowMs() - this.arrivedMs;
    this.observer.ended({ code, durationMs, tokens, timing: timing.result(), cost });
  }
}
