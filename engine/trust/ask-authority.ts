import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { authorityDigest, clusterOfAuthority } from '../../shared/transport/trust/certificate.js';
import { EnrolmentConnection, type EnrolmentContext } from './enrolment-connection.js';
import { authorityReplySchema, ENROLMENT_PATHS } from './enrolment-messages.js';

/** The authority that a main shows. Nothing proves yet that the main is of it. */
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
    if (cluster !== null) return { cluster, certificate: authority, digest: authorityDigest(authority) };
    const words = `the daemon at ${address} shows an authority that is not one of odmoe: give main's address`;
    throw new OdmoeError('TRUST_REFUSED', words);
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
