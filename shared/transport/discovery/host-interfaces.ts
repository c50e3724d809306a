import { networkInterfaces } from 'node:os';
import { toOdmoeError, type OdmoeError } from '../../base/errors/odmoe-error.js';
import type { Runtime, Timer } from '../../base/runtime/runtime.js';

/** An IPv4 address of this host, and the interface that has it. */
export interface HostAddress {
  readonly name: string;
  readonly address: string;
  /** It reaches this host alone. */
  readonly internal: boolean;
}

/** How often a daemon looks whether its host has other addresses: a new lease, a cable, a network that comes late. */
export const INTERFACE_POLL_MS = 2000;

/** Of this machine. */
export function hostAddresses(): HostAddress[] {
  return Object.entries(networkInterfaces()).flatMap(([name, addresses]) =>
    (addresses ?? []).flatMap(({ family, address, internal }) =>
      family === 'IPv4' ? [{ name, address, internal }] : [],
    ),
  );
}

/** Which addresses have come and which have gone; one that another interface has now has done both. Pure. */
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

/** Through which addresses a daemon speaks, and the interface that it follows where it was given an address of it. */
export interface SpokenAddresses {
  readonly addresses: readonly string[];
  /** null: every network of the host, or the interface of the given address has not been there yet. */
  readonly followed: string | null;
}

/**
 * The IPv4 addresses whose networks are spoken to. Null is given: every network of this host (a host without a default route has no "system's
 * choice"), else, without any network, loopback. An address is given: that one; when its interface has got another one meanwhile, that. Pure.
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

/** Is told when the host's addresses are others, or cannot be read. */
export interface AddressListener {
  changed(): void;
  failed(error: OdmoeError): void;
}

/** The addresses of the host that a daemon runs on. Looks at them again and again while somebody wants to hear of changes. */
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

  /** As they are now. Throws what the system says. */
  get addresses(): readonly HostAddress[] {
    return this.timer === null ? this.read() : this.known;
  }

  /** Returns how to stop. */
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
