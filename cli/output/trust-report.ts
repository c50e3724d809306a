import { formatDuration } from '../../shared/base/text/units.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import type { StatusReply, WaitingMachine } from '../../shared/wire/messages.js';

/** The first lines of a status: the protection of the cluster, and the machines that wait to be let in. */
export function trustLines({ trust, insecure }: Pick<StatusReply, 'trust' | 'insecure'>): string[] {
  if (insecure === true)
    return ['insecure: nothing protects this cluster (--insecure): anyone on the network can use it'];
  if (trust === null || trust === undefined) return [];
  return [
    `every connection is TLS, certificates of this cluster only; words: ${trust.words}`,
    ...waitingLines(trust.waiting),
  ];
}

/** The machines that show a code and wait. */
export function waitingLines(waiting: readonly WaitingMachine[]): string[] {
  if (waiting.length === 0) return [];
  const count = waiting.length === 1 ? '1 machine waits' : `${waiting.length} machines wait`;
  return [
    `${count}: odmoe accept CODE`,
    ...waiting.map(({ id, role, device, address, waitedMs }) => {
      // The device is in the machine's own words, and nobody knows yet whose it is.
      const parts = [role, device === '' ? '' : JSON.stringify(device), address]
        .filter((part) => part !== '')
        .join(', ');
      return printableLine(`  ${id} (${parts}), for ${formatDuration(waitedMs)}`);
    }),
  ];
}
