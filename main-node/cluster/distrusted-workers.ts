import type { PeerProblem } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import type { WorkerLink } from './worker-link.js';

/** Most starts of workers that are remembered as distrusted. A full map forgets the one that came least recently. */
export const MAX_DISTRUSTED = 256;

const ADVICE =
  'it is asked no more until it is started again, and rows that it took part in are computed anew: look at its memory, its device and its network';

/** Workers whose values others have proved wrong. They are set aside until they are started again: a new process has another boot id. */
export class DistrustedWorkers {
  /** Distrusted starts of workers by boot id. */
  private readonly starts = new RecentMap<string, { id: string; address: string; why: string }>(MAX_DISTRUSTED);
  private readonly aside = new Set<WorkerLink>();

  /** Workers that are connected and not placed. */
  get unplaced(): WorkerLink[] {
    return [...this.aside];
  }

  /** Ids of all remembered workers, connected or not. */
  get ids(): Set<string> {
    return new Set([...this.starts.values()].map(({ id }) => id));
  }

  /** True if this start of the worker is distrusted. */
  has({ identity }: WorkerLink): boolean {
    return this.starts.get(identity.bootId) !== undefined;
  }

  /** This start of the worker is distrusted, also if it is not connected. */
  note({ id, address, identity }: WorkerLink, why: string): void {
    this.starts.set(identity.bootId, { id, address, why });
  }

  setAside(link: WorkerLink, why: string): void {
    this.note(link, why);
    this.aside.add(link);
  }

  /** A worker has connected. Returns true if this start of it is distrusted: it is set aside then. Earlier starts of the worker do not count. */
  joined(link: WorkerLink): boolean {
    const { bootId } = link.identity;
    for (const [known, { id }] of this.starts) if (id === link.id && known !== bootId) this.starts.delete(known);
    if (this.starts.get(bootId) === undefined) return false;
    this.aside.add(link);
    return true;
  }

  /** Returns false if it was not set aside. */
  remove(link: WorkerLink): boolean {
    return this.aside.delete(link);
  }

  problems(): PeerProblem[] {
    return [...this.starts.values()].map(({ id, address, why }) => {
      return { address, id, code: 'WORKER_DISTRUSTED', message: `${why}; ${ADVICE}` };
    });
  }
}
