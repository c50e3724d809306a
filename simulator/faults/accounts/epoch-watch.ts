import type { MessageTap } from '../../network/channel.js';

/** The newest placement that a process has heard of. */
interface Heard {
  process: object | undefined;
  epoch: number;
}

/** Epochs only grow: nobody is told of a placement that is no newer than one it knows, whichever main told it and whatever clocks show. */
export class EpochWatch {
  readonly violations: string[] = [];
  private readonly heard = new Map<string, Heard>();

  /** `processOf`: what stands for the present process of a host; one that has been started again knows nothing. */
  constructor(private readonly processOf: (host: string) => object | undefined) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (message.kind !== 'placement') return;
    const process = this.processOf(to);
    const before = this.heard.get(to);
    const known = before !== undefined && before.process === process ? before.epoch : 0;
    const { epoch } = message.placement;
    if (way === 'arrived') {
      this.heard.set(to, { process, epoch: Math.max(known, epoch) });
      return;
    }
    // A shadow that comes into use is told of the placement that holds, which it may have had from the same main before.
    const isOld = this.isShadow(to) ? epoch < known : epoch <= known;
    if (isOld) this.violations.push(`${from} announces placement epoch ${epoch} to ${to}, which knows of ${known}`);
  };

  private isShadow(host: string): boolean {
    return host.startsWith('s');
  }
}
