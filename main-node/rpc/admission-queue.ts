import { OdmoeError } from '../../shared/errors/odmoe-error.js';

interface WaitingRequest {
  readonly client: string;
  admit(): void;
  /** What it was told last. */
  place: number | null;
  onPlace: (before: number) => void;
}

/**
 * Lets a bounded number of requests run and a bounded number wait. The next one to run is of the client that has the fewest running; among
 * these, first come first served.
 */
export class AdmissionQueue {
  private running = 0;
  private readonly runningOf = new Map<string, number>();
  /** In the order of their arrival. */
  private readonly waiting: WaitingRequest[] = [];

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
   * Resolves when it is the request's turn; leave() must follow. `client`: who asks. `onPlace` is told how many would be admitted before
   * it, whenever that changes. Rejects with QUEUE_FULL or CANCELLED.
   */
  async enter(client: string, signal: AbortSignal, onPlace: (before: number) => void = () => undefined): Promise<void> {
    if (signal.aborted) throw cancelled();
    if (this.running < this.maxActive) {
      this.begin(client);
      return;
    }
    if (this.waiting.length >= this.maxQueued) {
      throw new OdmoeError(
        'QUEUE_FULL',
        `${this.running} requests run and ${this.waiting.length} wait, which is the limit: ask again later, or raise ` +
          'main.max_queued_requests in cluster.yaml',
      );
    }
    await this.turn(client, signal, onPlace);
  }

  leave(client: string): void {
    this.running -= 1;
    const left = (this.runningOf.get(client) ?? 0) - 1;
    if (left > 0) this.runningOf.set(client, left);
    else this.runningOf.delete(client);
    const [next] = admissionOrder(this.waiting, this.runningOf);
    if (next !== undefined) {
      this.waiting.splice(this.waiting.indexOf(next), 1);
      this.begin(next.client);
      next.admit();
    }
    this.tellPlaces();
  }

  private begin(client: string): void {
    this.running += 1;
    this.runningOf.set(client, (this.runningOf.get(client) ?? 0) + 1);
  }

  private tellPlaces(): void {
    for (const [before, request] of admissionOrder(this.waiting, this.runningOf).entries()) {
      if (request.place === before) continue;
      request.place = before;
      request.onPlace(before);
    }
  }

  private turn(client: string, signal: AbortSignal, onPlace: (before: number) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        this.waiting.splice(this.waiting.indexOf(entry), 1);
        this.tellPlaces();
        reject(cancelled());
      };
      const entry: WaitingRequest = {
        ...{ client, place: null },
        admit: () => {
          signal.removeEventListener('abort', giveUp);
          resolve();
        },
        onPlace,
      };
      this.waiting.push(entry);
      this.tellPlaces();
      signal.addEventListener('abort', giveUp, { once: true });
    });
  }
}

/**
 * In which order requests would be admitted if none that runs ended meanwhile: each time the first one of the client that has the fewest.
 * Pure. `waiting`: in the order of arrival.
 */
export function admissionOrder<Request extends { readonly client: string }>(
  waiting: readonly Request[],
  runningOf: ReadonlyMap<string, number>,
): Request[] {
  const admitted = new Map(runningOf);
  // A client's n-th request waits for as many others of it; equals stay in the order of arrival.
  return waiting
    .map((request) => {
      const before = admitted.get(request.client) ?? 0;
      admitted.set(request.client, before + 1);
      return { request, before };
    })
    .sort((left, right) => left.before - right.before)
    .map(({ request }) => request);
}

function cancelled(): OdmoeError {
  return new OdmoeError('CANCELLED', 'the request was cancelled while it waited for its turn');
}
