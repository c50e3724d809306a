import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { authorityDigest, clusterOfAuthority, readPeerCertificate } from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { EnrolmentConnection, type EnrolmentContext } from './enrolment-connection.js';
import { authorityReplySchema, ENROLMENT_PATHS } from './enrolment-messages.js';

/** The authority that a main shows, which has certified this main. */
export interface ShownAuthority {
  readonly cluster: string;
  /** The authority's certificate, DER. */
  readonly certificate: Buffer;
  /** 64 digits of base 16. */
  readonly digest: string;
}

/**
 * Asks the main at the address for the authority of its cluster. Null: what listens there speaks no TLS, so its cluster has none.
 * @throws NO_MAIN, TIMEOUT, TRUST_REFUSED, TLS_MISMATCH, PROTOCOL_VIOLATION, CANCELLED
 */
export async function askAuthority(address: string, context: EnrolmentContext): Promise<ShownAuthority | null> {
  const connection = await connectionTo(address, context);
  if (connection === null) return null;
  try {
    const { authority } = await connection.ask(ENROLMENT_PATHS.authority, null, authorityReplySchema);
    const cluster = clusterOfAuthority(authority);
    if (cluster === null) {
      const words = `the daemon at ${address} shows an authority that is not one of odmoe: give main's address`;
      throw new OdmoeError('TRUST_REFUSED', words);
    }
    requireMainOf(authority, connection.serverCertificate, address);
    return { cluster, certificate: authority, digest: authorityDigest(authority) };
  } finally {
    connection.close();
  }
}

async function connectionTo(address: string, context: EnrolmentContext): Promise<EnrolmentConnection | null> {
  try {
    return await EnrolmentConnection.open(address, null, context);
  } catch (thrown) {
    if (thrown instanceof OdmoeError && thrown.code === 'TLS_MISMATCH') return null;
    throw thrown;
  }
}

/** Thrown where a server shows an authority that has not certified it: it may stand between. */
export class FalseMainError extends OdmoeError {}

/** The server that shows an authority must be a main of it. `certificate`: the server's, by which its TLS stands. Throws FalseMainError (TRUST_REFUSED). */
export function requireMainOf(authority: Buffer, certificate: Buffer, address: string): void {
  const isAuthority = clusterOfAuthority(authority) !== null;
  const server = isAuthority ? readPeerCertificate(certificate, authority) : null;
  if (server !== null && !isRefusal(server) && server.role === 'main') return;
  throw new FalseMainError(
    'TRUST_REFUSED',
    `the daemon at ${address} is not a main of the authority that it shows: something stands between, do not go on`,
  );
}
