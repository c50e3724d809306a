import type { PeerProblem } from '../../shared/rpc/messages.js';

/** Refusals that are remembered; the oldest goes first. */
export const MAX_REFUSED_PEERS = 1024;
/** A refused peer asks again every few seconds; one that has not for so long is gone, or belongs now. */
export const FORGET_REFUSED_AFTER_MS = 10 * 60_000;

/** Why peers that asked to join were turned away, by their address, while they go on asking. */
export class RefusedPeers {
  /** The one that has not asked for longest comes first. */
  private readonly refused = new Map<string, { problem: PeerProblem; askedMs: number }>();

  constructor(private readonly now: () => number) {}

  /** True when this has not been said of that peer yet. */
  add(problem: PeerProblem): boolean {
    this.expire();
    const news = this.refused.get(problem.address)?.problem.message !== problem.message;
    this.refused.delete(problem.address);
    this.refused.set(problem.address, { problem, askedMs: this.now() });
    const [oldest] = this.refused.keys();
    if (this.refused.size > MAX_REFUSED_PEERS && oldest !== undefined) this.refused.delete(oldest);
    return news;
  }

  delete(address: string): void {
    this.refused.delete(address);
  }

  problems(): PeerProblem[] {
    this.expire();
    return [...this.refused.values()].map(({ problem }) => problem);
  }

  private expire(): void {
    const dueMs = this.now() - FORGET_REFUSED_AFTER_MS;
    for (const [address, { askedMs }] of this.refused) {
      if (askedMs > dueMs) return;
      this.refused.delete(address);
    }
  }
}
