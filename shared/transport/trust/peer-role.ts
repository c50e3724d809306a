/** Roles that a certificate of a cluster can name. An operator is a person's command line: it asks daemons and serves nothing. */
export type PeerRole = 'main' | 'shadow' | 'worker' | 'operator';

/** The peer that a certificate names. */
export interface CertifiedCaller {
  readonly cluster: string;
  readonly role: PeerRole;
  readonly id: string;
}
