/** Decides whether a caller may do what it asks for, by the names in its certificate. Pure. */
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { NodeIdentity, Refusal } from '../wire/messages.js';
import type { MethodRules } from './methods.js';
import type { PeerContext } from './peer-context.js';
import type { CertifiedCaller, PeerRole } from './trust/peer-role.js';

/** Null if the caller may call the method, else NOT_ALLOWED. Without an authority every caller may. */
export function callRefusal(
  { path, callers }: Pick<MethodRules, 'callers'> & { path: string },
  { caller }: Pick<PeerContext, 'caller'>,
): OdmoeError | null {
  if (caller === null || callers.has(caller.role)) return null;
  const allowed = [...callers].join(', ');
  return new OdmoeError(
    'NOT_ALLOWED',
    `${caller.role} "${caller.id}" may not call ${path}: its certificate must be of role ${allowed}`,
  );
}

const CERTIFIED_ROLES: Readonly<Record<NodeIdentity['role'], PeerRole | null>> = {
  ROLE_UNSPECIFIED: null,
  ROLE_MAIN: 'main',
  ROLE_SHADOW: 'shadow',
  ROLE_WORKER: 'worker',
};

/** Compares the identity that a peer states with its certificate. Null if they agree, or if there is no authority; else the reason. */
export function identityRefusal(
  { id, role, cluster }: Pick<NodeIdentity, 'id' | 'role' | 'cluster'>,
  { caller }: Pick<PeerContext, 'caller'>,
): Refusal | null {
  if (caller === null) return null;
  const stated = { cluster, role: CERTIFIED_ROLES[role] ?? 'unspecified', id };
  for (const name of ['cluster', 'role', 'id'] as const) {
    if (stated[name] === caller[name]) continue;
    return {
      code: 'NOT_ALLOWED',
      message:
        `a peer states the ${name} ${JSON.stringify(stated[name])}, and its certificate has ${JSON.stringify(caller[name])}: ` +
        'give each daemon its own id and state directory, and let it join by its own code or token',
    };
  }
  return null;
}

/** Null if the daemon that serves as this worker may, else NOT_ALLOWED. Main's own worker is served at main's address, with main's certificate. */
export function servedWorkerRefusal(id: string, certified: CertifiedCaller | null): OdmoeError | null {
  if (certified === null || certified.role === 'main' || certified.id === id) return null;
  return new OdmoeError(
    'NOT_ALLOWED',
    `worker "${certified.id}" answers at the address of worker "${id}": give each worker its own address`,
  );
}
