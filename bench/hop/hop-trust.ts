/** Trust for one run of `odmoe bench hop`: a throw-away authority, whose key never leaves the process that made it. */
import { createPrivateKey, createPublicKey } from 'node:crypto';
import {
  type Authority,
  type CertifiedPeer,
  createAuthority,
  createNodeKey,
  issueCertificate,
} from '../../shared/transport/trust/certificate.js';
import type { ClusterTrust } from '../../shared/transport/trust/cluster-trust.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { HOP_CLUSTER } from './hop-network.js';

/** Makes the authority of a run. */
export function createHopAuthority(): Authority {
  return createAuthority(HOP_CLUSTER);
}

/** The trust of a new peer. It admits everybody whom the authority has certified. */
export function certifyHopPeer(authority: Authority, role: PeerRole, id: string): ClusterTrust {
  const key = createNodeKey();
  const certificate = issueCertificate(authority, { role, id }, createPublicKey(key));
  return trustOf({ authority: authority.certificate, own: { key, certificate } });
}

/** One line of JSON for the standard input of the process that the trust is for: arguments can be read by every user of the machine. */
export function sealHopTrust({ authority, own: { key, certificate } }: ClusterTrust): string {
  const sent: SentTrust = {
    authority: authority.toString('base64'),
    certificate: certificate.toString('base64'),
    key: key.export({ type: 'pkcs8', format: 'der' }).toString('base64'),
  };
  return JSON.stringify(sent);
}

/** The trust from such a line. */
export function openHopTrust(line: string): ClusterTrust {
  const { authority, certificate, key } = JSON.parse(line) as SentTrust;
  const bytes = (text: string): Buffer => Buffer.from(text, 'base64');
  const own = {
    key: createPrivateKey({ key: bytes(key), type: 'pkcs8', format: 'der' }),
    certificate: bytes(certificate),
  };
  return trustOf({ authority: bytes(authority), own });
}

/** All in base 64. */
interface SentTrust {
  authority: string;
  certificate: string;
  key: string;
}

function trustOf(parts: Pick<ClusterTrust, 'authority' | 'own'>): ClusterTrust {
  const nobodyRenews = { withNewestKey: (peer: CertifiedPeer): CertifiedPeer => peer };
  return { ...parts, ...nobodyRenews, cluster: HOP_CLUSTER, refusalOf: () => null, watch: () => () => undefined };
}
