import { checkPeer } from '../../shared/transport/peer-check.js';
import type { NodeIdentity, Refusal } from '../../shared/wire/messages.js';

/**
 * Why a daemon that announces itself may not join main; null: it may. `usesWorkers`: false where main's own worker runs all experts. Pure.
 */
export function joinRefusal(own: NodeIdentity, peer: NodeIdentity, usesWorkers: boolean): Refusal | null {
  if (peer.role === 'ROLE_MAIN') return secondMain(own, peer);
  if (peer.role === 'ROLE_WORKER' && !usesWorkers) return unusedWorker(own, peer);
  return checkPeer(own, peer);
}

/** The address that it says of itself cannot be dialled. */
export function badAddress(peer: NodeIdentity): Refusal {
  return {
    code: 'PROTOCOL_VIOLATION',
    message: `${peer.id} says that it is reached at "${peer.address}", which is not HOST:PORT: nothing can be dialled there`,
  };
}

function secondMain(own: NodeIdentity, peer: NodeIdentity): Refusal {
  return {
    code: 'NODE_REFUSED',
    message: `${peer.id} is a main and so is ${own.id}: a cluster has one; give one of them another cluster name`,
  };
}

function unusedWorker(own: NodeIdentity, peer: NodeIdentity): Refusal {
  return {
    code: 'NODE_REFUSED',
    message:
      `main ${own.id} runs all experts itself (main.experts: local) and has no use for worker ${peer.id}: start main with ` +
      '--experts both, or stop the worker',
  };
}
