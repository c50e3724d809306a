import { assertInvariant } from '../base/errors/assert-invariant.js';

export interface CountLimits {
  readonly all: number;
  readonly ofHost: number;
}

/** Counts connections, or handshakes, by the host that opened them, or by another name of the peer. One host cannot use up what is there for all. */
export class ConnectionCount {
  private readonly ofHosts = new Map<string, number>();
  private all = 0;

  constructor(private readonly limits: CountLimits) {}

  /** Counts one more of the host. False, without counting it, if a limit is reached. */
  begin(host: string): boolean {
    const ofHost = this.ofHosts.get(host) ?? 0;
    if (this.all >= this.limits.all || ofHost >= this.limits.ofHost) return false;
    this.all += 1;
    this.ofHosts.set(host, ofHost + 1);
    return true;
  }

  /** Counts a connection by another name from now on. False, and it stays counted as it was, if that one's limit is reached. */
  move(from: string, to: string): boolean {
    if ((this.ofHosts.get(to) ?? 0) >= this.limits.ofHost) return false;
    this.end(from);
    return this.begin(to);
  }

  end(host: string): void {
    const ofHost = this.ofHosts.get(host) ?? 0;
    assertInvariant(ofHost > 0, 'Only a connection that was counted ends.');
    this.all -= 1;
    if (ofHost === 1) this.ofHosts.delete(host);
    else this.ofHosts.set(host, ofHost - 1);
  }
}
