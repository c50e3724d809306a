import { OdmoeError, toOdmoeError } from '../../base/errors/odmoe-error.js';
import type { Logger } from '../../base/log/logger.js';
import type { NodeIdentity } from '../../wire/messages.js';
import type { Transport } from '../transport.js';
import type { Runtime, Timer } from '../../base/runtime/runtime.js';
import { joinMain } from '../node-clients.js';

/** Longest time of one Join. The stop of a daemon waits for it, so it must be shorter than the time for a stop. */
export const JOIN_TIMEOUT_MS = 1500;

/** Pause after a refusal. A refusal lasts until a user changes one of the two daemons. */
export const REFUSED_DELAY_MS = 5000;

/** After a welcome main opens its stream. If it has not done so within this time, the daemon asks again. */
export const WELCOME_DELAY_MS = 1000;

export interface JoinLoopOptions {
  runtime: Runtime;
  transport: Pick<Transport, 'call'>;
  mainAddress: string;
  identity(): NodeIdentity;
  /** True while main's stream to this daemon stands: then there is nothing to ask for. */
  isServed(): boolean;
  retryDelayMs: number;
  /** Called with NODE_REMOVED when main refuses this daemon's certificate. Null: there are no certificates, and whoever answers in main's place could say so. */
  endRefused: ((reason: OdmoeError) => void) | null;
  log: Logger;
}

/** Joins this daemon to the main at the given address, at the start and whenever main is lost, until it is stopped. */
export class JoinLoop {
  private timer: Timer | null = null;
  private attempt: Promise<void>;
  private stopped = false;
  /** The condition that was logged last, so that a lasting one is logged once. */
  private reported = '';
  /** True: main has refused this daemon's certificate at the last try. */
  private refusedBefore = false;
  /** Main must get this daemon's new address, even if main's stream to the old one still seems to stand. */
  private moved = false;

  constructor(private readonly options: JoinLoopOptions) {
    this.attempt = this.tryOnce();
  }

  /** This host's addresses have changed: asks main at once, and repeats it until main answers. */
  askAnew(): void {
    this.moved = true;
    if (this.stopped || this.timer === null) return;
    this.timer.cancel();
    this.attempt = this.tryOnce();
  }

  /** Resolves when no Join is in progress any more. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.timer?.cancel();
    await this.attempt;
  }

  private async tryOnce(): Promise<void> {
    this.timer = null;
    const delayMs = this.options.isServed() && !this.moved ? this.whileServed() : await this.ask();
    if (this.stopped) return;
    this.timer = this.options.runtime.after(delayMs, () => {
      this.attempt = this.tryOnce();
    });
  }

  private whileServed(): number {
    this.reported = '';
    return this.options.retryDelayMs;
  }

  private async ask(): Promise<number> {
    const { mainAddress, retryDelayMs } = this.options;
    const wasMoved = this.moved;
    try {
      this.moved = false;
      const reply = await joinMain(this.options.transport, mainAddress, this.options.identity(), JOIN_TIMEOUT_MS);
      this.refusedBefore = false;
      if (reply.kind === 'welcome') return Math.max(retryDelayMs, WELCOME_DELAY_MS);
      this.report('refused by main', reply.refusal.message, { code: reply.refusal.code });
      return REFUSED_DELAY_MS;
    } catch (thrown) {
      this.moved ||= wasMoved;
      const error = toOdmoeError(thrown);
      this.report('main does not answer', error.message, {});
      this.endIfRefused(error);
      return retryDelayMs;
    }
  }

  /**
   * A removal lasts. The connection was to a main that its certificate names, so nobody else can say this. A call also ends with this code when a new
   * roster no longer lists that main, but then no second connection stands.
   */
  private endIfRefused(error: OdmoeError): void {
    const isRefused = error.code === 'TRUST_REFUSED';
    if (isRefused && this.refusedBefore && !this.stopped) {
      this.options.endRefused?.(new OdmoeError('NODE_REMOVED', error.message, { cause: error }));
    }
    this.refusedBefore = isRefused;
  }

  private report(event: string, reason: string, fields: Record<string, unknown>): void {
    if (this.stopped || this.reported === reason) return;
    this.reported = reason;
    this.options.log.warn(event, { main: this.options.mainAddress, ...fields, reason });
  }
}
