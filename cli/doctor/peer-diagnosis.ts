/** Who answers at an address, and if nobody does, why. */
import { connect } from 'node:net';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { parseAddress } from '../../shared/wire/addresses.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { runtime, transport } from '../client/process-runtime.js';

export type PeerDiagnosis =
  | { kind: 'odmoe'; identity: NodeIdentity }
  /** A machine is there, but nothing listens at the port. */
  | { kind: 'refused' }
  /** Nothing came back at all. */
  | { kind: 'silent' }
  | { kind: 'unreachable'; reason: string }
  /** Something listens, and it is not odmoe. */
  | { kind: 'stranger'; reason: string };

export async function diagnosePeer(address: string, timeoutMs: number): Promise<PeerDiagnosis> {
  const { host, port } = parseAddress(address);
  const failure = await tryConnect(host, port, timeoutMs);
  if (failure === 'ECONNREFUSED') return { kind: 'refused' };
  if (failure === 'timeout' || failure === 'ETIMEDOUT') return { kind: 'silent' };
  if (failure !== null) return { kind: 'unreachable', reason: failure };
  try {
    return { kind: 'odmoe', identity: await transport.identifyPeer(address, timeoutMs) };
  } catch (thrown) {
    return { kind: 'stranger', reason: toOdmoeError(thrown).message };
  }
}

/** Null when a TCP connection comes about, else the system's word for why not. */
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
