import type { MessageTap } from '../../network/channel.js';

/** The newest placement that a process has received. */
interface Heard {
  process: object | undefined;
  epoch: number;
}

/**
 * Checks that epochs only grow: no process gets a placement that is not newer than one it knows, from any main and with any clocks. Messages
 * that never arrive do not count: a main that was stopped for a while cannot know which mains its peers have heard meanwhile.
 */
export class EpochWatch {
  readonly violations: string[] = [];
  private readonly heard = new Map<string, Heard>();
  /** Placements that were old when they were sent, with the epochs that their receivers knew. */
  private readonly old = new Map<string, number>();

  /** `processOf`: an object for the present process of a host; a restarted process knows no placement. */
  constructor(private readonly processOf: (host: string) => object | undefined) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (message.kind !== 'placement') return;
    const process = this.processOf(to);
    const before = this.heard.get(to);
    const known = before !== undefined && before.process === process ? before.epoch : 0;
    const { epoch } = message.placement;
    const announced = `${from} announces placement epoch ${epoch} to ${to}`;
    if (way === 'arrived') {
      this.heard.set(to, { process, epoch: Math.max(known, epoch) });
      const knew = this.old.get(announced);
      if (knew !== undefined) this.violations.push(`${announced}, which knew of ${knew}`);
      return;
    }
    // A shadow that comes into use gets the valid placement, which it may already have from the same main.
    if (this.isShadow(to) ? epoch < known : epoch <= known) this.old.set(announced, known);
  };

  private isShadow(host: string): boolean {
    return host.startsWith('s');
  }
}
