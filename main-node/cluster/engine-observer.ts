import type { RosterObserver } from './roster.js';

/** The parts of the engine that are told of changes of the cluster. */
interface ToldParts {
  checks: { placementChanged(): void } | null;
  room: { distrust(workerId: string): void };
  passLoop: { distrust(workerId: string): void };
}

/** The parts of the engine are told what the roster tells its observer. */
export function observedBy(nodes: RosterObserver, parts: () => ToldParts): RosterObserver {
  return {
    ...nodes,
    changed: () => {
      nodes.changed();
      parts().checks?.placementChanged();
    },
    distrusted: (id) => {
      const { room, passLoop } = parts();
      nodes.distrusted(id);
      room.distrust(id);
      passLoop.distrust(id);
    },
  };
}
