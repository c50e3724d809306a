import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { DrainedNode, DrainRequest } from '../../shared/wire/messages.js';
import type { Roster } from './roster.js';

/** The nodes that cannot be drained, because they are main's process. */
interface OwnIds {
  main: string;
  /** Empty: main has no worker of its own. */
  ownWorker: string;
}

type Drainable = Pick<Roster, 'drain' | 'undoDrain' | 'connectedWorkers' | 'connectedShadows'>;

/** Gives a node no new work, or work again. Returns how far it is; null: it gets work. Throws USAGE if main has no such node. */
export function drainNode(roster: Drainable, own: OwnIds, { id, undo }: DrainRequest): DrainedNode | null {
  requireDrainable(own, id);
  if (!undo) {
    const node = roster.drain(id);
    if (node === null) throw unknownNode(roster, id);
    return node;
  }
  if (!roster.undoDrain(id) && !idsOf(roster).includes(id)) throw unknownNode(roster, id);
  return null;
}

function requireDrainable({ main, ownWorker }: OwnIds, id: string): void {
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

function unknownNode(roster: Drainable, id: string): OdmoeError {
  const ids = idsOf(roster);
  const others =
    ids.length === 0 ? 'no worker and no shadow is' : `${ids.join(', ')} ${ids.length === 1 ? 'is' : 'are'}`;
  return new OdmoeError(
    'USAGE',
    `no node ${JSON.stringify(id)} is connected to main; ${others}. A node that is not connected does no work: it may be stopped`,
  );
}

function idsOf(roster: Drainable): string[] {
  return [...roster.connectedWorkers(), ...roster.connectedShadows()].map((link) => link.id).sort();
}
