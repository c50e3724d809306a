/** The one place that touches bonjour-service. */
import { networkInterfaces } from 'node:os';
import bonjourService, { type Service } from 'bonjour-service';
import type { Logger } from '../log/logger.js';
import type { Runtime } from '../runtime/runtime.js';
import { formatAddress } from '../rpc/addresses.js';
import { decodeTxt, type DiscoveredPeer } from './txt-record.js';

/** DNS-SD service type: `_odmoe._tcp`. */
export const SERVICE_TYPE = 'odmoe';

/** A late starter is found within this time even if its announcement was lost. */
export const QUERY_INTERVAL_MS = 5000;

/** Who lives is told again this often, to those that have forgotten it. */
export const LISTEN_AFRESH_MS = 10 * 60_000;

/** How long saying goodbye may take. */
const GOODBYE_TIMEOUT_MS = 500;

type Responder = InstanceType<typeof bonjourService.Bonjour>;
type Browser = ReturnType<Responder['find']>;
type Announcement = Parameters<Responder['publish']>[0];

/** One responder per network of this host. */
export interface Multicast {
  readonly responders: readonly Responder[];
}

/**
 * The IPv4 addresses whose networks are spoken to: the one given, else every network of this host (a host without a default
 * route has no "system's choice"), else, without any network, loopback.
 */
function interfaceAddresses(given: string | null): string[] {
  if (given !== null) return [given];
  const external = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter((address) => address.family === 'IPv4' && !address.internal)
    .map((address) => address.address);
  return external.length > 0 ? external : ['127.0.0.1'];
}

/** `onFault` gets socket errors: without it they would be thrown from a timer. */
export function openMulticast(interfaceAddress: string | null, onFault: (error: unknown) => void): Multicast {
  const responders = interfaceAddresses(interfaceAddress).map((address) => {
    // `interface` alone binds to that address and then hears no multicast.
    const options = { interface: address, bind: '0.0.0.0' };
    return new bonjourService.Bonjour(options as ConstructorParameters<typeof bonjourService.Bonjour>[0], onFault);
  });
  return { responders };
}

export function publish(multicast: Multicast, announcement: Announcement): void {
  for (const responder of multicast.responders) responder.publish({ ...announcement });
}

/** Says goodbye and closes the sockets. */
export async function closeMulticast(multicast: Multicast, runtime: Runtime): Promise<void> {
  await Promise.all(multicast.responders.map((responder) => closeResponder(responder, runtime)));
}

async function closeResponder(responder: Responder, runtime: Runtime): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = runtime.after(GOODBYE_TIMEOUT_MS, resolve);
    responder.unpublishAll(() => {
      timer.cancel();
      resolve();
    });
  });
  responder.destroy();
}

/**
 * Calls back for each well-formed announcement, again when a known one changes (another boot) and, of those that live, every
 * afreshMs. Returns how to stop.
 */
export function listen(
  multicast: Multicast,
  onPeer: (peer: DiscoveredPeer) => void,
  log: Logger | null,
  runtime: Runtime,
  afreshMs: number = LISTEN_AFRESH_MS,
): () => void {
  const heard = (service: Service): void => {
    const host = service.referer?.address;
    if (host === undefined || !(service.port > 0)) return;
    // The sender's address is one that reaches it; of those it advertises, some may not.
    const peer = decodeTxt(service.txt, formatAddress(host, service.port));
    if ('malformed' in peer) {
      log?.debug('ignored a malformed announcement', { from: host, name: service.name, reason: peer.malformed });
    } else {
      onPeer(peer);
    }
  };
  const browse = (): Browser[] =>
    multicast.responders.map((responder) => {
      const browser = responder.find({ type: SERVICE_TYPE });
      for (const event of ['up', 'txt-update', 'srv-update'] as const) browser.on(event, heard);
      return browser;
    });
  let browsers = browse();
  // A browser tells of an unchanged announcement once; a new one asks and tells again.
  const afreshTimer = runtime.every(afreshMs, () => {
    for (const browser of browsers) browser.stop();
    browsers = browse();
  });
  const timer = runtime.every(QUERY_INTERVAL_MS, () => {
    for (const browser of browsers) browser.update();
  });
  return () => {
    timer.cancel();
    afreshTimer.cancel();
    for (const browser of browsers) browser.stop();
  };
}
