import { networkInterfaces } from 'node:os';
import { toOdmoeError, type OdmoeError } from '../../base/errors/odmoe-error.js';
import type { Runtime, Timer } from '../../base/runtime/runtime.js';
import { isLoopbackHost } from '../credentials.js';

/** An IPv4 address of this host, and the interface that has it. */
export interface HostAddress {
  readonly name: string;
  readonly address: string;
  /** Only this host can be reached by it. */
  readonly internal: boolean;
}

/** Interval at which a daemon checks the addresses of its host: it may get a new lease, a cable, or a network that comes late. */
export const INTERFACE_POLL_MS = 2000;

/** The IPv4 addresses of this machine. */
export function hostAddresses(): HostAddress[] {
  return Object.entries(networkInterfaces()).flatMap(([name, addresses]) =>
    (addresses ?? []).flatMap(({ family, address, internal }) =>
      family === 'IPv4' ? [{ name, address, internal }] : [],
    ),
  );
}

/** True if packets from the address come from this host. `addresses`: those of this host. Pure. */
export function isOfHost(address: string, addresses: readonly HostAddress[]): boolean {
  return isLoopbackHost(address) || addresses.some((own) => own.address === address);
}

/** The addresses that have come and those that have gone. An address that moved to another interface counts as both. Pure. */
export function compareAddresses(
  before: readonly HostAddress[],
  after: readonly HostAddress[],
): { come: HostAddress[]; gone: HostAddress[] } {
  const [known, present] = [before, after].map((list) => new Set(list.map(keyOf)));
  return {
    come: after.filter((one) => known?.has(keyOf(one)) !== true),
    gone: before.filter((one) => present?.has(keyOf(one)) !== true),
  };
}

function keyOf({ name, address }: HostAddress): string {
  return `${name} ${address}`;
}

/** The addresses that a daemon uses. If the daemon was given an address, also the interface that it follows. */
export interface SpokenAddresses {
  readonly addresses: readonly string[];
  /** null: every network of the host is used, or the interface of the given address has not appeared yet. */
  readonly followed: string | null;
}

/**
 * The IPv4 addresses whose networks are used. `given` null: every network of this host (a host without a default route has no "system's
 * choice"), or loopback if there is none. `given` an address: that address, or the new address of its interface if the interface has changed it.
 * Pure.
 */
export function spokenAddresses(
  all: readonly HostAddress[],
  given: string | null,
  followed: string | null,
): SpokenAddresses {
  if (given === null) {
    const external = all.filter(({ internal }) => !internal).map(({ address }) => address);
    return { addresses: external.length > 0 ? external : [LOOPBACK], followed: null };
  }
  const named = all.find(({ address }) => address === given);
  if (named !== undefined) return { addresses: [given], followed: named.name };
  const moved = all.find(({ name }) => name === followed);
  return { addresses: moved === undefined ? [] : [moved.address], followed };
}

const LOOPBACK = '127.0.0.1';

/** Called when the host's addresses change, or cannot be read. */
export interface AddressListener {
  changed(): void;
  failed(error: OdmoeError): void;
}

/** The addresses of the host on which a daemon runs. They are polled as long as there is a listener. */
export class InterfaceWatch {
  private readonly listeners = new Set<AddressListener>();
  private timer: Timer | null = null;
  private known: readonly HostAddress[];

  constructor(
    private readonly runtime: Runtime,
    private readonly read: () => readonly HostAddress[],
  ) {
    this.known = [];
  }

  /** The present addresses. Throws the system's error. */
  get addresses(): readonly HostAddress[] {
    return this.timer === null ? this.read() : this.known;
  }

  /** Returns a function that ends the watch. */
  watch(listener: AddressListener): () => void {
    if (this.timer === null) {
      this.known = this.read();
      this.timer = this.runtime.every(INTERFACE_POLL_MS, () => this.look());
    }
    this.listeners.add(listener);
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size > 0) return;
      this.timer?.cancel();
      this.timer = null;
    };
  }

  private look(): void {
    let now: readonly HostAddress[];
    try {
      now = this.read();
    } catch (thrown) {
      for (const listener of [...this.listeners]) listener.failed(toOdmoeError(thrown));
      return;
    }
    const { come, gone } = compareAddresses(this.known, now);
    if (come.length + gone.length === 0) return;
    this.known = now;
    for (const listener of [...this.listeners]) listener.changed();
  }
}
