import type { PeerProblem } from '../../shared/wire/messages.js';
import type { WorkerLink } from './worker-link.js';

/** Experts that a worker may fail to load for their bytes, one after another, before others are asked instead: one may be a bad block. */
export const MAX_DAMAGE_ANSWERS = 3;

interface Damage {
  answers: number;
  /** What it said last. */
  message: string;
}

/** Workers whose copy of the pack is damaged, and which of them main does without until it is whole again. */
export class DamagedWorkers {
  private readonly damages = new Map<WorkerLink, Damage>();
  private readonly aside = new Set<WorkerLink>();

  /** Connected and not placed. */
  get unplaced(): WorkerLink[] {
    return [...this.aside];
  }

  /** The worker has answered PACK_CORRUPT. True: so often that others are to be asked instead. */
  answered(link: WorkerLink, message: string): boolean {
    const answers = (this.damages.get(link)?.answers ?? 0) + 1;
    this.damages.set(link, { answers, message });
    return answers >= MAX_DAMAGE_ANSWERS;
  }

  setAside(link: WorkerLink): void {
    this.aside.add(link);
  }

  /** The worker has told its status anew. True: it was set aside, and has what it lacked. */
  told(link: WorkerLink): boolean {
    if (link.status?.damagedExperts !== 0) return false;
    this.damages.delete(link);
    return this.aside.delete(link);
  }

  /** False when it was not set aside. */
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
