/** The roles of certificates: those of daemons, and that of people who direct the cluster. */
export const PEER_ROLES = ['main', 'shadow', 'worker', 'operator'] as const;

export type PeerRole = (typeof PEER_ROLES)[number];

/** The daemons that serve a method. */
export type ServedBy = 'main' | 'shadow' | 'worker' | 'any node';

export function isPeerRole(text: string): text is PeerRole {
  return PEER_ROLES.some((role) => role === text);
}

/** The names in a peer's certificate. */
export interface CertifiedCaller {
  readonly cluster: string;
  readonly role: PeerRole;
  readonly id: string;
  /** SHA-256 of the key that the caller has shown (SPKI, DER), 64 digits of base 16. Absent: it came by a way that needs no certificate. */
  readonly keyDigest?: string;
}
