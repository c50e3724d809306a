import { hostOf } from '../../wire/addresses.js';

/** How many there may be. */
export interface FairLimits {
  readonly all: number;
  readonly ofHost: number;
}

/**
 * Something of each address, within bounds: whoever makes up addresses takes the places of its own host first. Where all places are taken,
 * the host that has the most gives its oldest away.
 */
export class FairAddresses<Value> {
  private readonly hosts = new Map<string, Map<string, Value>>();
  private count = 0;

  constructor(private readonly limits: FairLimits) {}

  get size(): number {
    return this.count;
  }

  get(address: string): Value | undefined {
    return this.hosts.get(hostOf(address))?.get(address);
  }

  /** In no order. */
  values(): Value[] {
    return [...this.hosts.values()].flatMap((ofHost) => [...ofHost.values()]);
  }

  /** It is the newest then. Returns what had to give way. */
  set(address: string, value: Value): Value[] {
    this.delete(address);
    const host = hostOf(address);
    const ofHost = this.hosts.get(host) ?? new Map<string, Value>();
    this.hosts.set(host, ofHost);
    ofHost.set(address, value);
    this.count += 1;
    const gone: Value[] = [];
    if (ofHost.size > this.limits.ofHost) gone.push(...this.takeOldest(host));
    if (this.count > this.limits.all) gone.push(...this.takeOne());
    return gone;
  }

  delete(address: string): boolean {
    const host = hostOf(address);
    const ofHost = this.hosts.get(host);
    if (ofHost?.delete(address) !== true) return false;
    if (ofHost.size === 0) this.hosts.delete(host);
    this.count -= 1;
    return true;
  }

  /** The oldest of the host that has the most; nothing where there is none. */
  takeOne(): Value[] {
    let [fullest, most] = ['', 0];
    for (const [host, { size }] of this.hosts) if (size > most) [fullest, most] = [host, size];
    return this.takeOldest(fullest);
  }

  private takeOldest(host: string): Value[] {
    const [oldest] = this.hosts.get(host) ?? [];
    if (oldest === undefined) return [];
    const [address, value] = oldest;
    this.delete(address);
    return [value];
  }
}
