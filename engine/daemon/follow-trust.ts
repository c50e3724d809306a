import type { Logger } from '../../shared/base/log/logger.js';
import { addressesOf, startKeyRenewal } from '../trust/key-renewal.js';
import type { Closer } from './close-all.js';
import { type CheckedNode, startRemovalCheck } from './removal-check.js';

export interface TrustedNode extends CheckedNode {
  /** The address from which main came; null: none has come. */
  mainAddress(): string | null;
}

/** Renews the key of a worker or a shadow, and ends it if main has removed it. Returns the function that stops both. */
export function followTrust(node: TrustedNode, log: Logger): Closer {
  const mainAddresses = (): string[] => addressesOf(node.settings.mainAddress, node.mainAddress());
  const renewal = startKeyRenewal({ ...node.environment, mainAddresses }, log);
  const removal = startRemovalCheck(node, log);
  return async () => {
    await Promise.all([renewal?.stop(), removal?.stop()]);
  };
}
