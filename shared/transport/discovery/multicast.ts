/** The only file that uses bonjour-service. */
import bonjourService, { type Service } from 'bonjour-service';
import type { Logger } from '../../base/log/logger.js';
import type { Runtime } from '../../base/runtime/runtime.js';
import { type HostAddress, isOfHost } from './host-interfaces.js';
import { decodeTxt, type DiscoveredPeer } from './txt-record.js';
import { living } from '../../base/runtime/living.js';

/** DNS-SD service type: `_odmoe._tcp`. */
export const SERVICE_TYPE = 'odmoe';

/** Interval of queries. A daemon that starts late is found within this time even if its advertisement was lost. */
export const QUERY_INTERVAL_MS = 5000;

/** Interval at which living peers are reported again, for listeners that have forgotten them. */
export const LISTEN_AFRESH_MS = 60_000;

/**
 * Most services of one browser. A browser remembers everything that it has heard. A browser with this many is replaced; the new one reports the
 * living ones again.
 */
export const MAX_HEARD_SERVICES = 256;

/** Longest time of a goodbye. */
const GOODBYE_TIMEOUT_MS = 500;

type Responder = InstanceType<typeof bonjourService.Bonjour>;
type Browser = ReturnType<Responder['find']>;
type Advertisement = Parameters<Responder['publish']>[0];

/** A listener's handlers for each network. */
interface Listening {
  opened(responder: Responder): void;
  closed(responder: Responder): void;
}

/** One responder per network of this host, which may come and go. */
export class Multicast {
  private readonly responders = new Map<string, Responder>();
  private readonly listening = new Set<Listening>();
  /** Functions to call when the sockets of a responder are closed. */
  private readonly ends = new Map<Responder, () => void>();
  private advertisement: Advertisement | null = null;
  /** Sockets of networks that are gone, while they close. */
  private readonly leaving = new Set<Promise<void>>();

  /** `onFault` gets socket errors: without it they would be thrown from a timer. */
  constructor(private readonly onFault: (error: unknown) => void) {}

  /** Uses exactly these IPv4 addresses of the host from now on. */
  speakThrough(addresses: readonly string[]): void {
    for (const [address, responder] of this.responders) {
      if (addresses.includes(address)) continue;
      this.responders.delete(address);
      for (const one of this.listening) one.closed(responder);
      // A goodbye from an address that is gone is not heard; one by another address would seem to end our advertisement there.
      const left = this.destroy(responder).finally(() => this.leaving.delete(left));
      this.leaving.add(left);
    }
    for (const address of addresses) if (!this.responders.has(address)) this.open(address);
  }

  /** Advertises through every network, and replaces the earlier advertisement. */
  publish(advertisement: Advertisement): void {
    const isFirst = this.advertisement === null;
    this.advertisement = advertisement;
    for (const responder of this.responders.values()) {
      if (isFirst) responder.publish({ ...advertisement });
      else responder.unpublishAll(() => this.publishAgain(responder));
    }
  }

  /** The responder's network may have gone in the meantime. */
  private publishAgain(responder: Responder): void {
    const isOpen = [...this.responders.values()].includes(responder);
    if (isOpen && this.advertisement !== null) responder.publish({ ...this.advertisement });
  }

  /** Returns a function that stops listening. */
  listen(listening: Listening): () => void {
    this.listening.add(listening);
    for (const responder of this.responders.values()) listening.opened(responder);
    return () => {
      if (!this.listening.delete(listening)) return;
      for (const responder of this.responders.values()) listening.closed(responder);
    };
  }

  /** Says goodbye and closes the sockets. Resolves when they are closed. */
  async close(runtime: Runtime): Promise<void> {
    const responders = [...this.responders.values()];
    this.responders.clear();
    const closings = responders.map(async (responder) => {
      await sayGoodbye(responder, runtime);
      await this.destroy(responder);
    });
    await Promise.all([...closings, ...this.leaving]);
  }

  /** Resolves when its socket is closed. */
  private async destroy(responder: Responder): Promise<void> {
    await new Promise<void>((resolve) => responder.destroy(() => resolve()));
    this.ends.get(responder)?.();
    this.ends.delete(responder);
  }

  private open(address: string): void {
    // `interface` alone binds to that address, and the socket then receives no multicast.
    const options = { interface: address, bind: '0.0.0.0' };
    const responder = new bonjourService.Bonjour(
      options as ConstructorParameters<typeof bonjourService.Bonjour>[0],
      this.onFault,
    );
    this.responders.set(address, responder);
    this.ends.set(responder, living().begin('advertisement', address));
    for (const one of this.listening) one.opened(responder);
    if (this.advertisement !== null) responder.publish({ ...this.advertisement });
  }
}

async function sayGoodbye(responder: Responder, runtime: Runtime): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = runtime.after(GOODBYE_TIMEOUT_MS, resolve);
    responder.unpublishAll(() => {
      timer.cancel();
      resolve();
    });
  });
}

/** The listener to advertisements. */
export interface Listener {
  /** Addresses of this host. */
  readonly ownAddresses: () => readonly HostAddress[];
  onPeer(peer: DiscoveredPeer): void;
  /** A peer that listens on the loopback of another host, so that this host cannot dial it. */
  onElsewhere?(peer: DiscoveredPeer): void;
  readonly log: Logger | null;
  readonly runtime: Runtime;
  /** Interval at which living peers are reported again. */
  readonly afreshMs?: number;
}

/**
 * Calls back for each well-formed advertisement, again when a known one changes (another boot, another address), and every afreshMs for peers
 * that live. Returns a function that stops this.
 */
export function listen(multicast: Multicast, listener: Listener): () => void {
  const { log, runtime, afreshMs = LISTEN_AFRESH_MS } = listener;
  const browsers = new Map<Responder, { browser: Browser; end: () => void }>();
  const stopBrowsing = (responder: Responder): void => {
    const known = browsers.get(responder);
    browsers.delete(responder);
    known?.browser.stop();
    known?.end();
  };
  const hear = (service: Service): void => {
    const host = service.referer?.address;
    if (host === undefined || !(service.port > 0)) return;
    // The sender's address can be reached; some of the addresses that it advertises may not be. No packet of another host has it: the system
    // drops what comes from outside with an address of its own.
    const isThisHost = isOfHost(host, listener.ownAddresses());
    const heard = decodeTxt(service.txt, { host, port: service.port, isThisHost });
    if (heard.kind === 'malformed') {
      log?.debug('ignored a malformed advertisement', { from: host, name: service.name, reason: heard.reason });
    } else if (heard.kind === 'elsewhere') {
      listener.onElsewhere?.(heard.peer);
    } else {
      listener.onPeer(heard.peer);
    }
  };
  const browse = (responder: Responder): void => {
    stopBrowsing(responder);
    const browser = responder.find({ type: SERVICE_TYPE });
    browsers.set(responder, { browser, end: living().begin('browser', SERVICE_TYPE) });
    for (const event of ['up', 'txt-update', 'srv-update'] as const) {
      browser.on(event, (service: Service) => {
        if (browser.services.length >= MAX_HEARD_SERVICES && browsers.get(responder)?.browser === browser)
          browse(responder);
        hear(service);
      });
    }
  };
  const stopListening = multicast.listen({
    opened: browse,
    closed: stopBrowsing,
  });
  // A browser reports an unchanged advertisement once; a new browser asks and reports again.
  const afreshTimer = runtime.every(afreshMs, () => {
    for (const responder of [...browsers.keys()]) browse(responder);
  });
  const timer = runtime.every(QUERY_INTERVAL_MS, () => {
    for (const { browser } of browsers.values()) browser.update();
  });
  return () => {
    timer.cancel();
    afreshTimer.cancel();
    stopListening();
    // The browsers of networks that have been closed in the meantime.
    for (const responder of [...browsers.keys()]) stopBrowsing(responder);
  };
}
