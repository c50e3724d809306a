/** The roles that may call each method, and a call of each, for tests of every role. */
import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { Transport } from '../../shared/transport/transport.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { plainIdentity } from './plain-identity.js';
import { plainRequest } from './wire-messages.js';

export const NETWORK = {
  keepaliveIntervalMs: 500,
  keepaliveTimeoutMs: 700,
  executeTimeoutMs: 1000,
  reconnectDelayMs: 100,
};
export const ROLES: readonly PeerRole[] = ['main', 'shadow', 'worker', 'operator'];

/** Roles that may call a method, as docs/security.md promises; written again here, so that a slip in the table of methods is noticed. */
export const CALLERS: Record<string, readonly PeerRole[]> = {
  'node.identify': ROLES,
  'node.counts': ['main', 'operator'],
  'worker.serve': ['main', 'shadow'],
  'shadow.serve': ['main'],
  'cluster.join': ['shadow', 'worker'],
  'cluster.status': ROLES,
  'keys.renew': ['shadow', 'worker', 'operator'],
  'operator.accept': ['main', 'operator'],
  'operator.createToken': ['main', 'operator'],
  'operator.listTokens': ['main', 'operator'],
  'operator.revokeToken': ['main', 'operator'],
  'operator.listNodes': ['main', 'operator'],
  'operator.removeNode': ['main', 'operator'],
  'operator.drain': ['main', 'operator'],
  'inference.generate': ['main', 'operator'],
  'pack.describe': ['main', 'shadow', 'worker'],
  'pack.manifest': ['main', 'shadow', 'worker'],
  'pack.read': ['main', 'shadow', 'worker'],
};

const TIMEOUT_MS = 20_000;

const REQUESTS: Record<string, object> = {
  'cluster.join': { identity: plainIdentity() },
  'keys.renew': { spki: Buffer.from('k'), proof: Buffer.from('p') },
  'operator.accept': { code: '482913' },
  'operator.createToken': { role: 'worker', name: '', uses: 1, lifeMs: 1000 },
  'operator.revokeToken': { id: 'i' },
  'operator.removeNode': { id: 'i' },
  'operator.drain': { id: 'i', undo: false },
  'inference.generate': plainRequest(),
  'pack.manifest': { packDigest: 'd' },
  'pack.read': { packDigest: 'd', file: 'f', offsetBytes: 0, lengthBytes: 8 },
};

type Table = typeof METHODS;
export type AnyMethod = { [Service in keyof Table]: Table[Service][keyof Table[Service]] }[keyof Table];

/** The error with which the method ends that is called at the address; null: it was answered. */
export async function errorOf(
  client: Pick<Transport, 'call' | 'stream' | 'replies'>,
  address: string,
  name: string,
  method: AnyMethod,
): Promise<OdmoeError | null> {
  const request = REQUESTS[name] ?? {};
  if (method.shape === 'stream') {
    const stream = client.stream(address, method as typeof METHODS.worker.serve, NETWORK);
    return new Promise((resolve) => stream.onClose((error) => resolve(error)));
  }
  const asked =
    method.shape === 'call'
      ? client.call(address, method as typeof METHODS.cluster.join, request as never, { timeoutMs: TIMEOUT_MS })
      : client.replies(address, method as typeof METHODS.pack.read, request as never, {}).next();
  return asked.then(
    () => null,
    (thrown: unknown) => toOdmoeError(thrown),
  );
}

/** Every method, as "service.name". */
export function everyMethod(): [string, AnyMethod][] {
  return Object.entries(METHODS).flatMap(([service, methods]) =>
    Object.entries(methods).map(([name, method]): [string, AnyMethod] => [`${service}.${name}`, method as AnyMethod]),
  );
}
