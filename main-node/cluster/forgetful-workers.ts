import type { PeerProblem } from '../../shared/wire/messages.js';
import type { WorkerLink } from './worker-link.js';

/** A problem for each of these workers with strict homes that caches no experts. */
export function workersWithoutCache(links: readonly WorkerLink[]): PeerProblem[] {
  const forgetful = links.filter(({ status }) => status !== null && status.cache === null);
  const message =
    'keeps none of its experts and loads each anew, though they are its own (placement.homes: strict): ' +
    'start it with --homes strict, or with a larger memory budget';
  return forgetful.map(({ id, address }) => ({ address, id, code: 'CONFIG_INVALID', message }));
}
