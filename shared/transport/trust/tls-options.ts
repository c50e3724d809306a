/** The settings of TLS between the processes of a cluster with an authority. */
import type { SecureContextOptions } from 'node:tls';
import type { ClusterTrust } from './cluster-trust.js';

/** The protocol of a connection on which a machine asks to be let in. It needs no certificate. */
export const ENROLMENT_PROTOCOL = 'odmoe-enrol/1';

/** The protocol of gRPC: HTTP/2. */
export const GRPC_PROTOCOL = 'h2';

/** The protocol of those who get words at a port of gRPC, and nothing else. */
export const TEXT_PROTOCOL = 'http/1.1';

/** The one version of TLS and its ciphers, whatever the environment says. */
export const TLS_VERSION = {
  minVersion: 'TLSv1.3',
  maxVersion: 'TLSv1.3',
  ciphers: 'TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256',
} as const satisfies SecureContextOptions;

/**
 * Everything that variables of the environment (NODE_OPTIONS, GRPC_SSL_CIPHER_SUITES) could otherwise weaken is given here. A server that renews
 * its certificate must give all of it again.
 */
export function tlsOptions({ authority, own }: Pick<ClusterTrust, 'authority' | 'own'>): SecureContextOptions {
  return {
    ...TLS_VERSION,
    ca: pemOf('CERTIFICATE', authority),
    cert: pemOf('CERTIFICATE', own.certificate),
    key: own.key.export({ type: 'pkcs8', format: 'pem' }),
  };
}

/** The text form of a certificate in DER. */
export function pemOf(label: 'CERTIFICATE', der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ''].join('\n');
}
