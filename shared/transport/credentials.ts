import { ChannelCredentials, ServerCredentials } from '@grpc/grpc-js';
import { isIP } from 'node:net';

/** The only door through which channel security enters. Plaintext for now: see `unprotectedWarning`. */
export function channelCredentials(): ChannelCredentials {
  return ChannelCredentials.createInsecure();
}

export function serverCredentials(): ServerCredentials {
  return ServerCredentials.createInsecure();
}

/** True if only this machine can reach the host: 127.0.0.0/8, ::1 (also IPv4-mapped) and "localhost". */
export function isLoopbackHost(host: string): boolean {
  const bare = host.replace(/^\[(.*)\]$/, '$1').toLowerCase();
  if (bare === 'localhost' || bare === '::1') return true;
  const mapped = bare.startsWith('::ffff:') ? bare.slice('::ffff:'.length) : bare;
  return isIP(mapped) === 4 && mapped.startsWith('127.');
}

/** The line that a daemon logs if it listens where other machines can reach it; null if only this machine can. */
export function unprotectedWarning(host: string): string | null {
  if (isLoopbackHost(host)) return null;
  return 'the cluster is not yet protected: anyone who reaches this port can use it and read what passes; keep it on a trusted network';
}
