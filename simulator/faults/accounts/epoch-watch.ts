import type { MessageTap } from '../../network/channel.js';

/** The newest placement that a process has heard of. */
interface Heard {
  process: object | undefined;
  epoch: number;
}

/**
 * Epochs only grow: nobody hears of a placement that is no newer than one it knows, whichever main told it and whatever clocks show. What is
 * sent and never arrives does not count: a main that was stopped for a while cannot know whom its peers have heard meanwhile.
 */
export class EpochWatch {
  readonly violations: string[] = [];
  private readonly heard = new Map<string, Heard>();
  /** Announcements that were old when they were sent, and what their receivers knew. */
  private readonly old = new Map<string, number>();

  /** `processOf`: what stands for the present process of a host; one that has been started again knows nothing. */
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
    // A shadow that comes into use is told of the placement that holds, which it may have had from the same main before.
    if (this.isShadow(to) ? epoch < known : epoch <= known) this.old.set(announced, known);
  };

  private isShadow(host: string): boolean {
    return host.startsWith('s');
  }
}
