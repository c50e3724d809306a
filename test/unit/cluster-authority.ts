import { createPublicKey } from 'node:crypto';
import {
  type Authority,
  type CertifiedPeer,
  createAuthority,
  createNodeKey,
  issueCertificate,
} from '../../shared/transport/trust/certificate.js';
import type { ClusterTrust, OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';

/** A cluster's authority in a test. All members share its list of removed ids. */
export class TestCluster {
  private readonly removed = new Set<string>();
  private readonly watchers = new Set<() => void>();

  constructor(
    readonly name = 'test',
    readonly authority: Authority = createAuthority(name),
  ) {}

  certify(role: PeerRole, id: string): OwnCertificate {
    const key = createNodeKey();
    return { key, certificate: issueCertificate(this.authority, { role, id }, createPublicKey(key)) };
  }

  member(role: PeerRole, id: string = role, own = this.certify(role, id)): TestMember {
    return new TestMember(this, own);
  }

  remove(id: string): void {
    this.removed.add(id);
    this.changed();
  }

  changed(): void {
    for (const changed of [...this.watchers]) changed();
  }

  refusalOf({ id }: CertifiedPeer): string | null {
    return this.removed.has(id) ? `node ${id} was removed from "${this.name}"` : null;
  }

  watch(changed: () => void): () => void {
    this.watchers.add(changed);
    return () => this.watchers.delete(changed);
  }
}

export class TestMember implements ClusterTrust {
  constructor(
    private readonly members: TestCluster,
    public own: OwnCertificate,
  ) {}

  get cluster(): string {
    return this.members.name;
  }

  get authority(): Buffer {
    return this.members.authority.certificate;
  }

  refusalOf(peer: CertifiedPeer): string | null {
    return this.members.refusalOf(peer);
  }

  withNewestKey(peer: CertifiedPeer): CertifiedPeer {
    return peer;
  }

  watch(changed: () => void): () => void {
    return this.members.watch(changed);
  }
}
