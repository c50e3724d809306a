import type { PeerProblem } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import type { WorkerLink } from './worker-link.js';

/** Starts of workers that are remembered as not to be believed; of more, those that came least recently are forgotten. */
export const MAX_DISTRUSTED = 256;

const ADVICE =
  'it is asked no more until it is started again, and rows that it took part in are computed anew: look at its memory, its device and its network';

/** Workers that gave values which others prove wrong. They stay aside until they are started again: a new process has a boot id of its own. */
export class DistrustedWorkers {
  /** By boot id. */
  private readonly lies = new RecentMap<string, { id: string; address: string; why: string }>(MAX_DISTRUSTED);
  private readonly aside = new Set<WorkerLink>();

  /** Connected and not placed. */
  get unplaced(): WorkerLink[] {
    return [...this.aside];
  }

  /** Of all that are remembered, connected or not. */
  get ids(): Set<string> {
    return new Set([...this.lies.values()].map(({ id }) => id));
  }

  setAside(link: WorkerLink, why: string): void {
    const { id, address, identity } = link;
    this.lies.set(identity.bootId, { id, address, why });
    this.aside.add(link);
  }

  /** A worker has come. True: this start of it is not believed, and it is set aside; of one that was started again nothing is held against it. */
  joined(link: WorkerLink): boolean {
    const { bootId } = link.identity;
    for (const [known, { id }] of this.lies) if (id === link.id && known !== bootId) this.lies.delete(known);
    if (this.lies.get(bootId) === undefined) return false;
    this.aside.add(link);
    return true;
  }

  /** False when it was not set aside. */
  remove(link: WorkerLink): boolean {
    return this.aside.delete(link);
  }

  problems(): PeerProblem[] {
    return [...this.lies.values()].map(({ id, address, why }) => {
      return { address, id, code: 'WORKER_DISTRUSTED', message: `${why}; ${ADVICE}` };
    });
  }
}
