import type { MessageTap } from '../../network/channel.js';
import type { PassRow, Placement } from '../../../shared/wire/messages.js';

/** An expert that main has announced to a worker, and neither requested nor released. */
interface AnnouncedExpert {
  pass: PassRow;
  layer: number;
  expert: number;
}

/** Most violations that one run reports. */
const MOST_VIOLATIONS = 20;

/**
 * Checks that main requests or releases every announced expert before it comes to a later layer, or to a later pass of the same name. A worker
 * that is greeted again, or that gets a new placement, has forgotten earlier announcements.
 */
export class AnnouncementWatch {
  readonly violations: string[] = [];
  /** By worker. */
  private readonly announced = new Map<string, Map<string, AnnouncedExpert>>();

  constructor(private readonly main: string) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (way !== 'sent' || from !== this.main) return;
    if (message.kind === 'hello') this.announced.delete(to);
    else if (message.kind === 'placement') this.place(to, message.placement);
    else if (message.kind === 'announce') {
      const { pass, layer, experts, doubted = false } = message.announce;
      if (doubted) return;
      for (const expert of experts) this.of(to).set(keyOf(pass, layer, expert), { pass, layer, expert });
    } else if (message.kind === 'release') {
      const { pass, layer, experts } = message.release;
      for (const expert of experts) this.of(to).delete(keyOf(pass, layer, expert));
    } else if (message.kind === 'execute') {
      const { pass, rows, layer, experts } = message.execute;
      for (const { expert } of experts) this.of(to).delete(keyOf(pass, layer, expert));
      this.checkBefore(pass, layer);
      // In a joint pass also announcements under the name of a member, for a position that it has passed.
      for (const { sequence, position } of rows)
        if (sequence !== pass.sequence) this.checkBefore({ sequence, position }, 0);
    } else if (message.kind === 'end') {
      const { sequence } = message.end;
      for (const [key, { pass }] of this.of(to)) if (pass.sequence === sequence) this.of(to).delete(key);
    }
  };

  /** A worker that is not in the placement is lost, or is not asked any more. */
  private place(to: string, { workers }: Placement): void {
    this.announced.delete(to);
    const placed = new Set(workers.map(({ id }) => id));
    for (const worker of this.announced.keys()) if (!placed.has(worker)) this.announced.delete(worker);
  }

  private checkBefore(now: PassRow, layer: number): void {
    for (const [worker, ofWorker] of this.announced)
      for (const [key, before] of ofWorker) {
        const { pass } = before;
        const isPast = pass.position < now.position || (pass.position === now.position && before.layer < layer);
        if (pass.sequence !== now.sequence || !isPast) continue;
        ofWorker.delete(key);
        if (this.violations.length < MOST_VIOLATIONS)
          this.violations.push(
            `main announced to ${worker} expert ${before.expert} of layer ${before.layer} of the pass of ${pass.sequence} at ` +
              `${pass.position}, and main went on to layer ${layer} at ${now.position} without a request for it or a release`,
          );
      }
  }

  private of(worker: string): Map<string, AnnouncedExpert> {
    const known = this.announced.get(worker) ?? new Map<string, AnnouncedExpert>();
    this.announced.set(worker, known);
    return known;
  }
}

function keyOf({ sequence, position }: PassRow, layer: number, expert: number): string {
  return `${sequence} ${position} ${layer} ${expert}`;
}
