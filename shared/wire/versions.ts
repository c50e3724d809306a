/** The protocols that a node speaks, and the arithmetic by which it computes, as its identity states them. */
import { ARITHMETIC_VERSION, NEWEST_PROTOCOL, OLDEST_PROTOCOL } from './limits.js';
import type { NodeIdentity } from './messages.js';

/** The arithmetic of releases whose identities do not state one. */
const UNSTATED_ARITHMETIC = 1;

/** The part of a daemon's versions that a test may change. */
export interface NodeVersions {
  readonly newestProtocol: number;
  readonly arithmeticVersion: number;
}

/** Those of this release. */
export const RELEASE_VERSIONS: NodeVersions = {
  newestProtocol: NEWEST_PROTOCOL,
  arithmeticVersion: ARITHMETIC_VERSION,
};

type Versions = Pick<NodeIdentity, 'protocolVersion' | 'newestProtocol' | 'arithmeticVersion'>;

/** All versions of this release, for whoever has no identity to compare. */
export const OWN_VERSIONS: Versions = { protocolVersion: OLDEST_PROTOCOL, ...RELEASE_VERSIONS };

/** Releases of one protocol do not state a newest one. */
export function newestProtocolOf({ protocolVersion, newestProtocol = 0 }: Versions): number {
  return newestProtocol === 0 ? protocolVersion : newestProtocol;
}

/** The protocol of a conversation: the newest that both speak; null: there is none. Both sides find the same. Pure. */
export function spokenProtocol(own: Versions, peer: Versions): number | null {
  const newest = Math.min(newestProtocolOf(own), newestProtocolOf(peer));
  const oldest = Math.max(own.protocolVersion, peer.protocolVersion);
  return newest >= oldest ? newest : null;
}

/** "6", or "6 to 7". */
export function protocolsOf(node: Versions): string {
  const newest = newestProtocolOf(node);
  return newest === node.protocolVersion ? String(newest) : `${node.protocolVersion} to ${newest}`;
}

/** The arithmetic of a node: nodes with equal numbers compute equal bits. */
export function arithmeticVersionOf({ arithmeticVersion = 0 }: Versions): number {
  return arithmeticVersion === 0 ? UNSTATED_ARITHMETIC : arithmeticVersion;
}
