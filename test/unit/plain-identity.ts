import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { OLDEST_PROTOCOL } from '../../shared/wire/limits.js';

/** The identity of a worker of the cluster "test" that speaks this protocol. */
export function plainIdentity(changes: Partial<NodeIdentity> = {}): NodeIdentity {
  return {
    id: 'worker-1',
    role: 'ROLE_WORKER',
    cluster: 'test',
    protocolVersion: OLDEST_PROTOCOL,
    modelName: 'm',
    packDigest: 'd',
    bootId: 'b',
    address: '127.0.0.1:1',
    device: 'cpu',
    release: odmoeVersion(),
    quality: '',
    slicesDigest: '',
    newestProtocol: 0,
    arithmeticVersion: 0,
    ...changes,
  };
}
