import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { PeerProblem } from '../../shared/wire/messages.js';
import { arithmeticVersionOf } from '../../shared/wire/versions.js';
import type { WorkerLink } from './worker-link.js';

/**
 * Workers of a release whose bits differ from main's. They are connected and not placed: an answer would depend on which worker ran an expert. A
 * worker of another arithmetic comes back as another connection when it has been updated.
 */
export class OtherArithmetic {
  private readonly aside = new Set<WorkerLink>();

  constructor(private readonly own: number) {}

  /** Workers that are connected and not placed. */
  get unplaced(): WorkerLink[] {
    return [...this.aside];
  }

  /** A worker has connected. Returns true if its bits differ: it is set aside then. */
  joined(link: WorkerLink): boolean {
    if (arithmeticVersionOf(link.identity) === this.own) return false;
    this.aside.add(link);
    return true;
  }

  /** Returns false if it was not set aside. */
  remove(link: WorkerLink): boolean {
    return this.aside.delete(link);
  }

  problems(): PeerProblem[] {
    const code: ErrorCode = 'ARITHMETIC_DIFFERS';
    return this.unplaced.map((link) => ({ address: link.address, id: link.id, code, message: this.why(link) }));
  }

  why({ identity }: WorkerLink): string {
    const there = arithmeticVersionOf(identity);
    const older = there < this.own ? 'the worker' : 'main';
    return (
      `computes by arithmetic ${there} (odmoe ${identity.release || 'of an unknown release'}) and main by arithmetic ${this.own}: ` +
      `their bits differ, so it gets no work until odmoe is updated on ${older}`
    );
  }
}
