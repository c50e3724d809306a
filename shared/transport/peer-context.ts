import type { CertifiedCaller } from './trust/peer-role.js';

/** The caller of a method, as the transport knows it. Every handler gets it. */
export interface PeerContext {
  /** Address from which the peer connected, without its port. */
  readonly host: string;
  /** The peer that the caller's certificate names; null: the cluster has no authority, so that callers have no certificates. */
  readonly caller: CertifiedCaller | null;
}

/** The name by which bounds count a peer: its certificate's, because many may share a host and one may have many addresses; without one its host. */
export function countedName({ host, caller }: PeerContext): string {
  return caller === null ? host : `${caller.role} ${caller.id}`;
}
