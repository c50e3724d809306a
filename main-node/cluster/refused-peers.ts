import { FairAddresses } from '../../shared/transport/discovery/fair-addresses.js';
import type { PeerProblem } from '../../shared/wire/messages.js';

/** Refusals that are remembered, and those of one host among them. */
export const REFUSED_PEERS_LIMITS = { all: 128, ofHost: 16 };
/** A refused peer asks again every few seconds; one that has not for so long is gone, or belongs now. */
export const FORGET_REFUSED_AFTER_MS = 10 * 60_000;

interface Refused {
  problem: PeerProblem;
  askedMs: number;
}

/** Why peers that asked to join were turned away, by their address, while they go on asking. */
export class RefusedPeers {
  private readonly refused = new FairAddresses<Refused>(REFUSED_PEERS_LIMITS);

  constructor(private readonly now: () => number) {}

  /** True when this has not been said of that peer yet. */
  add(problem: PeerProblem): boolean {
    const before = this.refused.get(problem.address);
    this.refused.set(problem.address, { problem, askedMs: this.now() });
    return before === undefined || this.isOver(before) || before.problem.message !== problem.message;
  }

  delete(address: string): void {
    this.refused.delete(address);
  }

  /** Who asked first comes first. */
  problems(): PeerProblem[] {
    const all = this.refused.values();
    for (const entry of all) if (this.isOver(entry)) this.refused.delete(entry.problem.address);
    const lasting = all.filter((entry) => !this.isOver(entry));
    return lasting.sort((left, right) => left.askedMs - right.askedMs).map(({ problem }) => problem);
  }

  private isOver({ askedMs }: Refused): boolean {
    return askedMs <= this.now() - FORGET_REFUSED_AFTER_MS;
  }
}
