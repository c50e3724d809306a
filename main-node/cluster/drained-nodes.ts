import type { NodeIdentity } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';

/** Most starts of nodes that are remembered as drained. A full map forgets the one that came least recently. */
export const MAX_DRAINED = 256;

type Started = Readonly<{ identity: Pick<NodeIdentity, 'id' | 'bootId'> }>;

/**
 * The nodes that an operator has told main to give no new work. A drain is of one start of a node: it outlives broken connections, and ends when the
 * node is started again, which is what drains are for, or when main is.
 */
export class DrainedNodes {
  /** Ids by boot id. */
  private readonly starts = new RecentMap<string, string>(MAX_DRAINED);

  has({ identity }: Started): boolean {
    return this.starts.get(identity.bootId) !== undefined;
  }

  add({ identity: { id, bootId } }: Started): void {
    this.starts.set(bootId, id);
  }

  /** The node of this id gets work again, connected or not. Returns false if it was not drained. */
  undo(id: string): boolean {
    return this.forget(id, '') > 0;
  }

  /** A node has connected. Returns true if an earlier start of it was drained: it gets work again. */
  joined({ identity: { id, bootId } }: Started): boolean {
    return this.forget(id, bootId) > 0;
  }

  /** Returns the number of drained starts of the id that are forgotten: all but this one. */
  private forget(id: string, bootIdToKeep: string): number {
    const gone = [...this.starts].filter(([bootId, drained]) => drained === id && bootId !== bootIdToKeep);
    for (const [bootId] of gone) this.starts.delete(bootId);
    return gone.length;
  }
}
