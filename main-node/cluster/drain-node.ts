import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { nearestKey } from '../../shared/base/text/nearest-key.js';
import type { DrainedNode, DrainRequest } from '../../shared/wire/messages.js';
import type { Roster } from './roster.js';

interface ClusterIds {
  /** It cannot be drained, because it is main itself. */
  main: string;
  /** Nor can this one, which is in main's process. Empty: main has no worker of its own. */
  ownWorker: string;
  /** Those that the cluster's authority has let in; none where it has no authority. */
  members: () => readonly string[];
}

type Drainable = Pick<Roster, 'drain' | 'undoDrain' | 'connectedWorkers' | 'connectedShadows' | 'hasMet'>;

/** Gives a node no new work, or work again. Returns how far it is; null: it gets work. Throws USAGE if main has no such node. */
export function drainNode(roster: Drainable, ids: ClusterIds, { id, undo }: DrainRequest): DrainedNode | null {
  requireDrainable(ids, id);
  if (!undo) {
    const node = roster.drain(id);
    if (node === null) throw absentNode(roster, ids, id);
    return node;
  }
  if (!roster.undoDrain(id) && !connectedIds(roster).includes(id)) throw absentNode(roster, ids, id);
  return null;
}

function requireDrainable({ main, ownWorker }: ClusterIds, id: string): void {
  if (id === main) {
    throw new OdmoeError(
      'USAGE',
      `${id} is main itself, without which nothing answers: stop it when you like, it takes no new requests then and ends those under way first (main.stop_grace_ms)`,
    );
  }
  if (id !== '' && id === ownWorker) {
    throw new OdmoeError('USAGE', `${id} runs in main's own process and stops with it: there is nothing to drain`);
  }
}

/** An id that nobody here has ever had may be a typing error for that of a box that works: it must not be stopped. */
function absentNode(roster: Drainable, { members }: ClusterIds, id: string): OdmoeError {
  const connected = connectedIds(roster);
  const who = `no node ${JSON.stringify(id)} is connected to main`;
  const others =
    connected.length === 0
      ? 'no worker and no shadow is'
      : `${connected.join(', ')} ${connected.length === 1 ? 'is' : 'are'}`;
  if (roster.hasMet(id) || members().includes(id)) {
    return new OdmoeError(
      'USAGE',
      `${who}; ${others}. The cluster knows it, and it does no work now: it may be stopped`,
    );
  }
  const near = nearestKey(id, [...connected, ...members()]);
  const meant = near === null ? '' : `: did you mean ${JSON.stringify(near)}?`;
  return new OdmoeError('USAGE', `${who}; ${others}. The cluster knows no node of this id${meant}`);
}

function connectedIds(roster: Drainable): string[] {
  return [...roster.connectedWorkers(), ...roster.connectedShadows()].map((link) => link.id).sort();
}
