import { hostOf } from '../../wire/addresses.js';

/** Most values in all, and most values of one host. */
export interface FairLimits {
  readonly all: number;
  readonly ofHost: number;
}

/**
 * A bounded map with a value for each address. A host that makes up addresses displaces its own entries first. If all places are taken, the host
 * with the most entries loses its oldest.
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

  /** All values, in no particular order. */
  values(): Value[] {
    return [...this.hosts.values()].flatMap((ofHost) => [...ofHost.values()]);
  }

  /** Sets the value, as the newest of its host. Returns the values that were removed for it. */
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

  /** Removes the oldest value of the host with the most. Returns nothing if there is none. */
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
