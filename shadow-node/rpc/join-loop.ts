import { toOdmoeError } from '../../shared/errors/index.js';
import type { Logger } from '../../shared/log/logger.js';
import type { JoinReply } from '../../shared/rpc/messages.js';

/** How long one Join may take. */
export const JOIN_TIMEOUT_MS = 5_000;

/** How long to wait before asking again after main has refused: nothing changes until somebody acts. */
export const REFUSED_DELAY_MS = 5_000;

export interface JoinLoopOptions {
  mainAddress: string;
  join(): Promise<JoinReply>;
  /** While main's stream to this daemon stands there is nothing to ask for. */
  isServed(): boolean;
  retryDelayMs: number;
  log: Logger;
}

/** Makes this daemon known to main, at start and whenever main is lost, until it is stopped. */
export class JoinLoop {
  private timer: NodeJS.Timeout | null = null;
  private attempt: Promise<void>;
  private stopped = false;
  /** So that a lasting condition is logged once. */
  private reported = '';

  constructor(private readonly options: JoinLoopOptions) {
    this.attempt = this.tryOnce();
  }

  async stop(): Promise<void> {
    this.stopped = true;
    if (this.timer !== null) clearTimeout(this.timer);
    await this.attempt;
  }

  private async tryOnce(): Promise<void> {
    const delayMs = this.options.isServed() ? this.options.retryDelayMs : await this.ask();
    if (this.stopped) return;
    this.timer = setTimeout(() => {
      this.attempt = this.tryOnce();
    }, delayMs);
  }

  private async ask(): Promise<number> {
    const { mainAddress, retryDelayMs } = this.options;
    try {
      const reply = await this.options.join();
      if (reply.kind === 'refusal') {
        this.report('refused by main', reply.refusal.message, { mainAddress, code: reply.refusal.code });
        return REFUSED_DELAY_MS;
      }
      this.reported = '';
      return Math.max(retryDelayMs, JOIN_SETTLE_MS);
    } catch (error) {
      this.report('main does not answer', toOdmoeError(error).message, { mainAddress });
      return retryDelayMs;
    }
  }

  private report(event: string, reason: string, fields: Record<string, unknown>): void {
    if (this.stopped || this.reported === reason) return;
    this.reported = reason;
    this.options.log.warn(event, { ...fields, reason });
  }
}

/** After a welcome main opens its stream; until this long has passed there is no point in asking again. */
const JOIN_SETTLE_MS = 1_000;
