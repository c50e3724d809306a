import { OdmoeError } from '../../shared/errors/odmoe-error.js';

/** Lets a bounded number of requests run and a bounded number wait, first come first served. */
export class AdmissionQueue {
  private running = 0;
  private readonly waiting: { admit(): void; onPlace: (before: number) => void }[] = [];

  constructor(
    private readonly maxActive: number,
    private readonly maxQueued: number,
  ) {}

  get active(): number {
    return this.running;
  }

  get queued(): number {
    return this.waiting.length;
  }

  /**
   * Resolves when it is the request's turn; leave() must follow. `onPlace` is told how many wait before it, whenever that changes. Rejects
   * with QUEUE_FULL or CANCELLED.
   */
  async enter(signal: AbortSignal, onPlace: (before: number) => void = () => undefined): Promise<void> {
    if (signal.aborted) throw cancelled();
    if (this.running < this.maxActive) {
      this.running += 1;
      return;
    }
    if (this.waiting.length >= this.maxQueued) {
      throw new OdmoeError(
        'QUEUE_FULL',
        `${this.running} requests run and ${this.waiting.length} wait, which is the limit: ask again later, or raise ` +
          'main.max_queued_requests in cluster.yaml',
      );
    }
    await this.turn(signal, onPlace);
  }

  leave(): void {
    const next = this.waiting.shift();
    if (next === undefined) this.running -= 1;
    else next.admit();
    this.tellPlaces();
  }

  private tellPlaces(): void {
    for (const [before, { onPlace }] of this.waiting.entries()) onPlace(before);
  }

  private turn(signal: AbortSignal, onPlace: (before: number) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        this.waiting.splice(this.waiting.indexOf(entry), 1);
        this.tellPlaces();
        reject(cancelled());
      };
      const entry = {
        admit: (): void => {
          signal.removeEventListener('abort', giveUp);
          resolve();
        },
        onPlace,
      };
      this.waiting.push(entry);
      onPlace(this.waiting.length - 1);
      signal.addEventListener('abort', giveUp, { once: true });
    });
  }
}

function cancelled(): OdmoeError {
  return new OdmoeError('CANCELLED', 'the request was cancelled while it waited for its turn');
}
