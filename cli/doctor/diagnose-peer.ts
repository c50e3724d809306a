/** The daemon that answers at an address, or the reason why none does. */
import { connect } from 'node:net';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import type { Transport } from '../../shared/transport/transport.js';
import { parseAddress } from '../../shared/wire/addresses.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { commandTrust } from '../client/operator-access.js';
import { runtime, transport } from '../client/process-runtime.js';
import { type IdentitiesOf, isCertified } from './own-identities.js';
import { probeTls, type ShownByTls } from './probe-tls.js';

export type PeerDiagnosis =
  /** `shown`: what it shows by TLS; null: it speaks plaintext. */
  | { kind: 'odmoe'; identity: NodeIdentity; shown: ShownByTls | null }
  /** It is a daemon of odmoe by its certificate, and answers this machine's calls with nothing. */
  | { kind: 'closed'; shown: ShownByTls }
  /** The machine exists, but no program listens at the port. */
  | { kind: 'refused' }
  /** No reply came at all. */
  | { kind: 'silent' }
  | { kind: 'unreachable'; reason: string }
  /** A program listens, but it is not odmoe. */
  | { kind: 'stranger'; reason: string };

export async function diagnosePeer(
  address: string,
  timeoutMs: number,
  identitiesOf: IdentitiesOf,
): Promise<PeerDiagnosis> {
  const { host, port } = parseAddress(address);
  const failure = await tryConnect(host, port, timeoutMs);
  if (failure === 'ECONNREFUSED') return { kind: 'refused' };
  if (failure === 'timeout' || failure === 'ETIMEDOUT') return { kind: 'silent' };
  if (failure !== null) return { kind: 'unreachable', reason: failure };
  const shown = await probeTls(address, timeoutMs);
  if (shown?.peer === null)
    return { kind: 'stranger', reason: 'it speaks TLS, and its certificate is not one of odmoe' };
  const asking = await transportTo(shown, identitiesOf);
  if (asking === null && shown !== null) return { kind: 'closed', shown };
  try {
    return { kind: 'odmoe', identity: await identifyPeer(asking ?? transport, address, timeoutMs), shown };
  } catch (thrown) {
    return shown === null ? { kind: 'stranger', reason: toOdmoeError(thrown).message } : { kind: 'closed', shown };
  }
}

/** A transport that a peer may answer: in plaintext, or as a daemon or an operator here that has joined the peer's cluster. Null: there is none. */
export async function transportTo(shown: ShownByTls | null, identitiesOf: IdentitiesOf): Promise<Transport | null> {
  if (shown === null) return transport;
  if (shown.peer === null) return null;
  for (const own of await identitiesOf(shown.peer.cluster)) {
    if (own.kind !== 'joined' || !isCertified(shown.certificate, own.credentials)) continue;
    return new GrpcTransport(runtime, null, commandTrust(own.credentials));
  }
  return null;
}

/** Null if a TCP connection succeeds, else the system's error code. */
async function tryConnect(host: string, port: number, timeoutMs: number): Promise<string | null> {
  const socket = connect({ host, port });
  let resolve: (failure: string | null) => void = () => undefined;
  const outcome = new Promise<string | null>((settle) => (resolve = settle));
  const silence = waitForPeer(runtime, timeoutMs, () => resolve('timeout'));
  socket.once('connect', () => resolve(null));
  socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  try {
    return await outcome;
  } finally {
    silence.cancel();
    socket.destroy();
  }
}
