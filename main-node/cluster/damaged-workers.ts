import type { PeerProblem } from '../../shared/wire/messages.js';
import type { WorkerLink } from './worker-link.js';

/**
 * Number of experts that a worker may fail to load because of damaged bytes, one after another, before other workers are asked: one may be a bad
 * block.
 */
export const MAX_DAMAGE_ANSWERS = 3;

interface Damage {
  answers: number;
  /** Its last message. */
  message: string;
}

/** Workers whose copy of the pack is damaged; those that are set aside are not used until their copy is whole again. */
export class DamagedWorkers {
  private readonly damages = new Map<WorkerLink, Damage>();
  private readonly aside = new Set<WorkerLink>();

  /** Workers that are connected and not placed. */
  get unplaced(): WorkerLink[] {
    return [...this.aside];
  }

  /** The worker has answered PACK_CORRUPT. Returns true if it did so often that other workers are to be asked instead. */
  answered(link: WorkerLink, message: string): boolean {
    const answers = (this.damages.get(link)?.answers ?? 0) + 1;
    this.damages.set(link, { answers, message });
    return answers >= MAX_DAMAGE_ANSWERS;
  }

  setAside(link: WorkerLink): void {
    this.aside.add(link);
  }

  /** The worker has sent a new status. Returns true if it was set aside and now has the experts that it lacked. */
  reported(link: WorkerLink): boolean {
    if (link.status?.damagedExperts !== 0) return false;
    this.damages.delete(link);
    return this.aside.delete(link);
  }

  /** Returns false if it was not set aside. */
  remove(link: WorkerLink): boolean {
    this.damages.delete(link);
    return this.aside.delete(link);
  }

  problems(): PeerProblem[] {
    return [...this.damages].flatMap(([{ id, address }, { answers, message }]) => {
      if (answers < MAX_DAMAGE_ANSWERS) return [];
      const advice = "its copy of the pack is damaged: copy the pack anew, or start it without --model to fetch main's";
      return [{ address, id, code: 'PACK_CORRUPT', message: `${message}; ${advice}` }];
    });
  }
}
