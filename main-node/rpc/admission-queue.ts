import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { onAbort } from '../../shared/base/runtime/living.js';

interface WaitingRequest {
  readonly client: string;
  readonly promptTokens: number;
  admit(): void;
  refuse(error: OdmoeError): void;
  /** The place that it was last given. */
  place: number | null;
  onPlace: (before: number) => void;
}

/**
 * Lets a bounded number of requests run, as far as memory admits them, and a bounded number wait. The next one to run belongs to the client that has
 * the fewest running; among these, the first to come is first. No request overtakes one that memory has no room for yet. A client that fills the queue
 * keeps nobody else out: its newest waiting request gives its place to one of a client that has fewer.
 */
export class AdmissionQueue {
  private running = 0;
  private readonly runningOf = new Map<string, number>();
  /** In the order of arrival. */
  private readonly waiting: WaitingRequest[] = [];

  constructor(
    private readonly maxActive: number,
    private readonly maxQueued: number,
    /** True if prompts of so many tokens could begin beside the running requests. If nothing runs, one begins in any case. */
    private readonly fits: (promptTokens: number) => boolean = () => true,
  ) {}

  get active(): number {
    return this.running;
  }

  get queued(): number {
    return this.waiting.length;
  }

  /**
   * Resolves when it is the request's turn; leave() must follow. `client`: the sender of the request. `onPlace` is called with the number of requests
   * that would be admitted before it, whenever that changes. Rejects with QUEUE_FULL or CANCELLED.
   */
  async enter(
    client: string,
    signal: AbortSignal,
    onPlace: (before: number) => void = () => undefined,
    promptTokens = 0,
  ): Promise<void> {
    if (signal.aborted) throw cancelled();
    if (this.waiting.length === 0 && this.mayBegin(promptTokens)) {
      this.begin(client);
      return;
    }
    if (this.waiting.length >= this.maxQueued && !this.makePlaceFor(client)) {
      throw new OdmoeError(
        'QUEUE_FULL',
        `${this.running} requests run and ${this.waiting.length} wait, which is the limit: ask again later, or raise ` +
          'main.max_queued_requests in cluster.yaml',
      );
    }
    await this.turn({ client, promptTokens }, signal, onPlace);
  }

  /** Refuses the newest waiting request of the client that has the most of them. False: it would not have more than this client then. */
  private makePlaceFor(client: string): boolean {
    const waitingOf = new Map<string, number>();
    for (const { client: each } of this.waiting) waitingOf.set(each, (waitingOf.get(each) ?? 0) + 1);
    const [most, count] = [...waitingOf].reduce((left, right) => (right[1] > left[1] ? right : left), ['', 0]);
    if (count <= (waitingOf.get(client) ?? 0) + 1) return false;
    const newest = this.waiting.findLast((request) => request.client === most);
    assertInvariant(newest !== undefined, 'The client with the most waiting requests has one.');
    this.waiting.splice(this.waiting.indexOf(newest), 1);
    const why = `this client has ${count} of the ${this.maxQueued} requests that may wait, and another client needs a place`;
    newest.refuse(new OdmoeError('QUEUE_FULL', `${why}: ask again later, with fewer requests at once`));
    return true;
  }

  leave(client: string): void {
    this.running -= 1;
    const left = (this.runningOf.get(client) ?? 0) - 1;
    if (left > 0) this.runningOf.set(client, left);
    else this.runningOf.delete(client);
    this.admitNext();
    this.tellPlaces();
  }

  private admitNext(): void {
    // Prompts of requests that are admitted in this loop take no memory yet.
    let admittedTokens = 0;
    for (;;) {
      const [next] = admissionOrder(this.waiting, this.runningOf);
      if (next === undefined || !this.mayBegin(admittedTokens + next.promptTokens)) return;
      admittedTokens += next.promptTokens;
      this.waiting.splice(this.waiting.indexOf(next), 1);
      this.begin(next.client);
      next.admit();
    }
  }

  private mayBegin(promptTokens: number): boolean {
    return this.running < this.maxActive && (this.running === 0 || this.fits(promptTokens));
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

  private turn(
    { client, promptTokens }: Pick<WaitingRequest, 'client' | 'promptTokens'>,
    signal: AbortSignal,
    onPlace: (before: number) => void,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        this.waiting.splice(this.waiting.indexOf(entry), 1);
        // This may have been the request that memory had no room for.
        this.admitNext();
        this.tellPlaces();
        reject(cancelled());
      };
      const entry: WaitingRequest = {
        client,
        promptTokens,
        place: null,
        admit: () => {
          leave();
          resolve();
        },
        refuse: (error) => {
          leave();
          reject(error);
        },
        onPlace,
      };
      const leave = onAbort(signal, giveUp);
      this.waiting.push(entry);
      this.tellPlaces();
    });
  }
}

/**
 * The order in which requests would be admitted if no running one ended meanwhile: each time the first request of the client that has the fewest.
 * Pure. `waiting`: in the order of arrival.
 */
export function admissionOrder<Request extends { readonly client: string }>(
  waiting: readonly Request[],
  runningOf: ReadonlyMap<string, number>,
): Request[] {
  const admitted = new Map(runningOf);
  // A client's n-th request waits for n - 1 others of the same client; requests with equal counts stay in the order of arrival.
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
