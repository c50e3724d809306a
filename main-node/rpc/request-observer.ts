import { GenerationTiming } from '../../engine/generation/generation-timing.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { SepMetrics, Timing } from '../../shared/wire/messages.js';
import type { AnswerCost } from '../decode/cluster-sequence.js';

/** The end of a request. */
export interface RequestEnd {
  code: 'ok' | ErrorCode;
  /** Time from its arrival to its end, however it ended. */
  durationMs: number;
  /** Tokens of the answer, as far as it came. */
  tokens: number;
  timing: Timing;
  /** Null: its answer never began. */
  cost: AnswerCost | null;
}

/** An answer in the making, with its costs so far. */
export interface AnswerCosts {
  cost(): AnswerCost;
  /** Null: nothing has predicted experts. */
  sepMetrics(): SepMetrics | null;
}

/** Notified of every request that comes to main. Its methods must not throw. */
export interface RequestObserver {
  /** The request runs from now on. */
  admitted(promptTokens: number, queuedMs: number): void;
  firstToken(ttftMs: number): void;
  /** Called for each token of the answer. */
  token(): void;
  /** The answer is being made from now on; its costs can be read. */
  answering?(source: AnswerCosts): void;
  /** The answer is freed: its costs do not change any more. */
  answered?(source: AnswerCosts): void;
  ended(end: RequestEnd): void;
}

/** Makes one observer of several. */
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

/** Notifies the observer of one request. */
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
