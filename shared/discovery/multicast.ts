/** The one place that touches bonjour-service. */
import bonjourService, { type Service } from 'bonjour-service';
import type { Logger } from '../log/index.js';
import { formatAddress } from '../rpc/addresses.js';
import { decodeTxt, type DiscoveredPeer } from './txt-record.js';

/** DNS-SD service type: `_odmoe._tcp`. */
export const SERVICE_TYPE = 'odmoe';

/** A late starter is found within this time even if its announcement was lost. */
export const QUERY_INTERVAL_MS = 5000;

/** How long saying goodbye may take. */
const GOODBYE_TIMEOUT_MS = 500;

type Multicast = InstanceType<typeof bonjourService.Bonjour>;

/** `onFault` gets socket errors: without it they would be thrown from a timer. */
export function openMulticast(interfaceAddress: string | null, onFault: (error: unknown) => void): Multicast {
  // `interface` alone binds to that address and then hears no multicast.
  const options = interfaceAddress === null ? {} : { interface: interfaceAddress, bind: '0.0.0.0' };
  return new bonjourService.Bonjour(options as ConstructorParameters<typeof bonjourService.Bonjour>[0], onFault);
}

/** Says goodbye and closes the socket. */
export async function closeMulticast(multicast: Multicast): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, GOODBYE_TIMEOUT_MS);
    multicast.unpublishAll(() => {
      clearTimeout(timer);
      resolve();
    });
  });
  multicast.destroy();
}

/** Calls back for each well-formed announcement, again when a known one changes (another boot). Returns how to stop. */
export function listen(multicast: Multicast, onPeer: (peer: DiscoveredPeer) => void, log: Logger | null): () => void {
  const browser = multicast.find({ type: SERVICE_TYPE });
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
  browser.on('up', heard);
  browser.on('txt-update', heard);
  browser.on('srv-update', heard);
  const timer = setInterval(() => {
    browser.update();
  }, QUERY_INTERVAL_MS);
  return () => {
    clearInterval(timer);
    browser.stop();
  };
}
