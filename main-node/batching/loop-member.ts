import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { MemberRows } from '../pass/pass-member.js';
import type { BatchMember } from './batch-member.js';
import type { ReadyMember } from './plan-pass.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** Rows that a member asks for: all that are not written up to a position. */
export interface RowsWanted {
  /** The last of them is in front of this position. Rows behind it, drafts, run where a pass has room for them. */
  readonly until: number;
  /** Logits are taken one by one (MemberRows.onLogits). */
  readonly onLogits?: (position: number, logits: Float32Array) => void;
  /** A pass begins in which so many rows of the answer run. */
  begins?(answerRows: number): void;
  /** A pass has run rows; `logits` are of the last of them, as far as they are wanted and onLogits has not had them. */
  ran(logits: readonly Float32Array[]): void;
}

interface Request extends RowsWanted {
  resolve(): void;
  reject(error: unknown): void;
}

/** A member as the loop keeps it: what it waits for, and whether a pass works on it. */
export class LoopMember implements ReadyMember {
  lastPass = 0;
  /** It was not back when a pass began without it. */
  isLate = false;
  private request: Request | null = null;
  private observerError: { thrown: unknown } | null = null;
  private isRunning = false;
  private onIdle: (() => void)[] = [];

  constructor(readonly member: BatchMember) {}

  get id(): number {
    return this.member.id;
  }

  get client(): string {
    return this.member.client;
  }

  get written(): number {
    return this.member.written;
  }

  get end(): number {
    return this.member.tokenIds.length;
  }

  get decodeFrom(): number {
    return this.member.decodeFrom;
  }

  /** It has rows to run, and no pass works on it. */
  get isReady(): boolean {
    return this.request !== null && !this.isRunning;
  }

  get isBusy(): boolean {
    return this.isRunning;
  }

  /** Rejects with CANCELLED as soon as the member's signal aborts. `onGone`: that was so. */
  want(wanted: RowsWanted, onGone: () => void): Promise<void> {
    const { signal } = this.member;
    return new Promise((resolve, reject) => {
      const end = (): void => {
        stopListening();
        this.request = null;
      };
      const request: Request = {
        ...wanted,
        resolve: () => {
          end();
          resolve();
        },
        reject: (error) => {
          end();
          reject(toOdmoeError(error));
        },
      };
      const giveUp = (): void => {
        request.reject(new OdmoeError('CANCELLED', 'the request was cancelled'));
        onGone();
      };
      this.request = request;
      const stopListening = onAbort(signal, giveUp);
      if (signal.aborted) giveUp();
    });
  }

  /** `rows` rows from `position` on; left out: the next ones that are not written. */
  rows(rows: number, position = this.written): MemberRows {
    const { member } = this;
    const indexOf = (from: number): number => Math.max(0, Math.min(rows, from - position));
    const onLogits = this.request?.onLogits;
    return {
      member,
      position,
      tokenIds: member.tokenIds.slice(position, position + rows),
      decodeFrom: indexOf(member.decodeFrom),
      logitsFrom: indexOf(member.wantedFrom),
      ...(onLogits === undefined ? {} : { onLogits: this.observing(onLogits) }),
    };
  }

  begin({ decodeFrom, tokenIds }: MemberRows, pass: number): void {
    this.isRunning = true;
    this.lastPass = pass;
    if (decodeFrom < tokenIds.length) this.request?.begins?.(tokenIds.length - decodeFrom);
  }

  /** The pass has run its rows. Those of a member that is tainted run anew. */
  ran(logits: readonly Float32Array[]): void {
    const { request, member } = this;
    if (request === null) return;
    if (member.isTainted) return member.computeAnew();
    if (this.observerError !== null) return this.fail(this.observerError.thrown);
    try {
      request.ran(logits);
    } catch (thrown) {
      return this.fail(thrown);
    }
    if (this.written >= request.until) request.resolve();
  }

  fail(error: unknown): void {
    this.request?.reject(error);
  }

  /** No pass works on it any more. */
  release(): void {
    this.isRunning = false;
    for (const tell of this.onIdle.splice(0)) tell();
  }

  /** Resolves when no pass works on it. */
  async idle(): Promise<void> {
    if (this.isRunning) await new Promise<void>((resolve) => this.onIdle.push(resolve));
  }

  /** What the member's own observer throws is no failure of the pass, which others are in. */
  private observing(onLogits: NonNullable<RowsWanted['onLogits']>): NonNullable<RowsWanted['onLogits']> {
    return (position, logits) => {
      if (this.observerError !== null || this.request === null || this.member.isTainted) return;
      try {
        onLogits(position, logits);
      } catch (thrown) {
        this.observerError = { thrown };
      }
    };
  }
}
