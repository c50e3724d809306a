import { fetchStatus } from '../../shared/transport/node-clients.js';
import { dialAddress, hostOf, isSocketAddress } from '../../shared/wire/addresses.js';
import type { StatusReply } from '../../shared/wire/messages.js';
import { whileAsking } from './main-wait.js';
import type { ReachedMain } from './operator-access.js';

/** A busy main may take a while to answer. */
export const STATUS_TIMEOUT_MS = 15_000;

const LOOPBACK = '127.0.0.1';

/** Main's status, with the address of its HTTP API as this host dials it. Rejects as fetchStatus does. */
export function askStatus(main: ReachedMain): Promise<StatusReply> {
  return whileAsking(main.address, () => askStatusQuietly(main));
}

/** The same for a program that has the whole screen, where no words may come between. */
export async function askStatusQuietly({ address, transport }: ReachedMain): Promise<StatusReply> {
  const status = await fetchStatus(transport, address, STATUS_TIMEOUT_MS);
  return { ...status, httpAddress: dialledHttp(status.httpAddress, address) };
}

/**
 * The address at which this host finds the HTTP API of the main that it has reached at `mainAddress`: a main that serves every network reports
 * 0.0.0.0, which nobody can open. '': there is no HTTP API. Pure.
 */
export function dialledHttp(httpAddress: string, mainAddress: string): string {
  if (httpAddress === '') return '';
  return dialAddress(httpAddress, isSocketAddress(mainAddress) ? LOOPBACK : hostOf(mainAddress));
}
