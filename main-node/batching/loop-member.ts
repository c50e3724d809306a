import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { MemberRows } from '../pass/pass-member.js';
import type { BatchMember } from './batch-member.js';
import type { ReadyMember } from './plan-pass.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** The rows that a member asks for: all rows up to a position that are not written. */
export interface RowsWanted {
  /** The position after the last of these rows. Rows from there on are drafts, and run where a pass has room for them. */
  readonly until: number;
  /** Takes the logits one by one (MemberRows.onLogits). */
  readonly onLogits?: (position: number, logits: Float32Array) => void;
  /** A pass begins that runs so many rows of the answer. */
  begins?(answerRows: number): void;
  /** A pass has run rows. `logits`: those of its last rows, if they are wanted and onLogits has not had them. */
  ran(logits: readonly Float32Array[]): void;
}

interface Request extends RowsWanted {
  resolve(): void;
  reject(error: unknown): void;
}

/** The loop's record of a member: the rows that it waits for, and whether a pass works on it. */
export class LoopMember implements ReadyMember {
  lastPass = 0;
  /** A pass began without it, because it was not back in time. */
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
    const { tokenIds, decisions = null, written } = this.member;
    return decisions === null ? tokenIds.length : Math.min(tokenIds.length, decisions.passEnd(written));
  }

  get decodeFrom(): number {
    return this.member.decodeFrom;
  }

  /** True if it has rows to run, and no pass works on it. */
  get isReady(): boolean {
    return this.request !== null && !this.isRunning;
  }

  get isBusy(): boolean {
    return this.isRunning;
  }

  /** Rejects with CANCELLED as soon as the member's signal aborts; then `onGone` is called. */
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

  /** The member's `rows` rows from `position` on; left out: from its first row that is not written. */
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

  /** The pass has run its rows. If the member is tainted, they run anew. */
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

  /** An error that the member's own observer throws does not fail the pass, which has other members, too. */
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
