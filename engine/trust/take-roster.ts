import type { Logger } from '../../shared/base/log/logger.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import type { NodeTrust } from './node-trust.js';

/** Takes a roster that main has sent, as the authority signed it. */
export type TakeRoster = (signed: Uint8Array) => void;

/** A node without trust ignores rosters. One that is sent a bad roster goes on with its own. */
export function rosterTaker(trust: NodeTrust | null, log: Logger): TakeRoster {
  if (trust === null) {
    return () => log.debug('a roster came, and this node has no certificate of a cluster: it is ignored');
  }
  return (signed) => {
    const { roster: before } = trust;
    const taken = trust.takeRoster(signed);
    if (isRefusal(taken)) {
      log.warn('a roster of main is not taken', { reason: taken.refusal });
      return;
    }
    if (taken === before) return;
    log.info('took a newer roster of the cluster', { count: taken.count });
    const { ownRemoval } = trust;
    if (ownRemoval !== null) log.error('this node is not in its cluster any more', { reason: ownRemoval });
  };
}
