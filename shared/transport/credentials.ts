import { ChannelCredentials, type ChannelOptions, credentials } from '@grpc/grpc-js';
import { isIP } from 'node:net';
import { createSecureContext } from 'node:tls';
import type { MethodRules } from './methods.js';
import { type DialledPeer, dialledName } from './trust/dialled-peer.js';
import { tlsOptions } from './trust/tls-options.js';

/** The security of a channel to a daemon of the role. `dialled`: checks the peer's certificate; null: the cluster has no authority. */
export function channelSecurity(
  dialled: DialledPeer | null,
  servedBy: MethodRules['servedBy'],
): { credentials: ChannelCredentials; options: ChannelOptions } {
  if (dialled === null) return { credentials: ChannelCredentials.createInsecure(), options: {} };
  const context = createSecureContext(tlsOptions(dialled.trust));
  return {
    credentials: credentials.createFromSecureContext(context, {
      checkServerIdentity: (name, certificate) => dialled.check(name, certificate),
    }),
    // Daemons are dialled by address, and their certificates hold names.
    options: { 'grpc.ssl_target_name_override': dialledName(servedBy) },
  };
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
  return 'insecure: nothing protects this daemon (--insecure): anyone on the network can use it';
}
