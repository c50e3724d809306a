import { toOdmoeError } from '../../shared/errors/index.js';
import type { Logger } from '../../shared/log/index.js';
import { joinMain, type NodeIdentity } from '../../shared/rpc/index.js';

/** After a welcome main opens its stream; how long to wait for it before knocking again. */
export const WELCOME_INTERVAL_MS = 2000;

/** How often after a refusal, which only a restart of one of the two is likely to lift. */
export const REFUSED_INTERVAL_MS = 15_000;

/** How long one knock may take. */
export const JOIN_TIMEOUT_MS = 1500;

/** Makes this worker known to the main it was given the address of, whenever no stream of main's stands. */
export class MainAnnouncer {
  readonly #address: string;
  readonly #retryDelayMs: number;
  readonly #identity: () => NodeIdentity;
  readonly #hasMain: () => boolean;
  readonly #log: Logger;
  #timer: NodeJS.Timeout | null = null;
  #knock: Promise<void> = Promise.resolve();
  #stopped = false;
  #lastComplaint: string | null = null;

  /** `retryDelayMs`: between two knocks that nobody answers, and between two looks whether main's stream still stands. */
  constructor(
    address: string,
    retryDelayMs: number,
    identity: () => NodeIdentity,
    hasMain: () => boolean,
    log: Logger,
  ) {
    this.#address = address;
    this.#retryDelayMs = retryDelayMs;
    this.#identity = identity;
    this.#hasMain = hasMain;
    this.#log = log;
  }

  start(): void {
    this.#knockIn(0);
  }

  /** Resolves when no knock is under way any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#knock;
  }

  #knockIn(delayMs: number): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#knock = this.#knockOnce().then((nextMs) => {
        this.#knockIn(nextMs);
      });
    }, delayMs);
  }

  /** Never rejects; returns when to knock again. */
  async #knockOnce(): Promise<number> {
    if (this.#hasMain()) {
      this.#lastComplaint = null;
      return this.#retryDelayMs;
    }
    try {
      const reply = await joinMain(this.#address, this.#identity(), JOIN_TIMEOUT_MS);
      if (reply.kind === 'welcome') return WELCOME_INTERVAL_MS;
      this.#complain('main refused this worker', reply.refusal.message);
      return REFUSED_INTERVAL_MS;
    } catch (thrown) {
      this.#complain('main does not answer', toOdmoeError(thrown).message);
      return this.#retryDelayMs;
    }
  }

  /** Once per reason, not once per knock. */
  #complain(event: string, reason: string): void {
    if (this.#stopped || reason === this.#lastComplaint) return;
    this.#lastComplaint = reason;
    this.#log.warn(event, { main: this.#address, reason });
  }
}
